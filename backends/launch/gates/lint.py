"""Gate `lint`: pages have complete front matter and pass the Markdown linter."""

import json
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers.frontmatter import split
from gateway.errors import Fault, Kind

# Generated pages contain long lines, comments (the claim markers) and a title only in the front matter. Reference pages
# repeat headings such as "Examples" below different symbols.
_SETTINGS: Final = """\
[global]
disable = ["MD013", "MD033", "MD041", "MD071"]

[MD024]
siblings-only = true
"""


def check(context: GateContext) -> Iterator[Finding]:
    required = context.worker.read("frontmatter_contract.json")["sections"]
    readable: dict[str, str] = {}
    for page in context.plan:
        path = page["output_path"]
        text = context.pages.get(path)
        if text is None:
            yield Finding("GATE_FRONTMATTER_PAGE_MISSING", "The planned page is not there.", "blocker", path)
            continue
        found = list(_check_front_matter(path, text, required[page["section"]]["required_keys"]))
        yield from found
        if not any(finding.severity == "blocker" for finding in found):
            readable[path] = text  # the linter would parse broken front matter as text
    yield from _lint(readable)


def _lint(pages: Mapping[str, str]) -> Iterator[Finding]:
    """Lint all pages in one run of the linter."""
    if not pages:
        return
    with tempfile.TemporaryDirectory(prefix="launch-lint-") as folder:
        by_name = {f"{number:05}.md": path for number, path in enumerate(pages)}
        for name, path in by_name.items():
            Path(folder, name).write_text(pages[path], encoding="utf-8")
        output = _run_linter(Path(folder), "check", "--output-format", "json", ".")
    for failure in json.loads(output or "[]"):
        message = f"{failure['rule']}: {failure['message']}"
        path = by_name[Path(failure["file"]).name]
        yield Finding("GATE_MARKDOWN_LINT", message, "error", path, failure["line"])


def format_page(page: str) -> str:
    """Return the page with the linter's repairs."""
    with tempfile.TemporaryDirectory(prefix="launch-lint-") as folder:
        file = Path(folder, "page.md")
        file.write_text(page, encoding="utf-8")
        _run_linter(Path(folder), "fmt", "--quiet", file.name)
        return file.read_text(encoding="utf-8")


def _run_linter(folder: Path, *arguments: str) -> str:
    (folder / "rumdl.toml").write_text(_SETTINGS, encoding="utf-8")
    done = subprocess.run(  # noqa: S603
        [_find_linter(), arguments[0], "--no-cache", "--config", "rumdl.toml", *arguments[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env={"LANG": "C.UTF-8", "HOME": str(folder)},
    )
    if done.returncode not in (0, 1):
        raise Fault(Kind.INTERNAL, "The Markdown linter failed.", details={"cause_class": "LinterFailed"})
    return done.stdout.decode("utf-8", "replace")


def _find_linter() -> str:
    """Return the linter of the `launch` extra, or the one on PATH. Raises `TOOLCHAIN_MISSING`."""
    packaged = Path(sysconfig.get_path("scripts")) / "rumdl"
    if packaged.is_file():
        return str(packaged)
    if (found := shutil.which("rumdl")) is not None:
        return found
    raise Fault(
        Kind.UNSUPPORTED,
        "The Markdown linter is not installed.",
        code="TOOLCHAIN_MISSING",
        details={"tool": "rumdl"},
        suggested_fix="Install the `launch` extra.",
    )


def _check_front_matter(path: str, text: str, required: list[str]) -> Iterator[Finding]:
    try:
        matter, _ = split(text)
    except ValueError as exc:
        yield Finding("GATE_FRONTMATTER_INVALID_YAML", f"{exc}".capitalize() + ".", "blocker", path, 1)
        return
    if matter is None:
        yield Finding("GATE_FRONTMATTER_MISSING", "The page has no front matter.", "blocker", path, 1)
        return
    for key in required:
        if not matter.get(key):
            yield Finding("GATE_FRONTMATTER_KEY_MISSING", f"The front matter has no `{key}`.", "error", path, 1)
