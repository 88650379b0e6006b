"""Gate `lint`: pages have complete front matter and pass the Markdown linter."""

import importlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers.frontmatter import split
from gateway.errors import Fault, Kind

# Generated pages contain long lines, comments (the claim markers) and a title only in the front matter.
_DISABLED_RULES: Final = ("md013", "md033", "md041")


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
    """Lint all pages in one scan, because each scan initializes every rule."""
    with tempfile.TemporaryDirectory(prefix="launch-lint-") as folder:
        by_name = {f"{number:05}.md": path for number, path in enumerate(pages)}
        for name, path in by_name.items():
            Path(folder, name).write_text(pages[path], encoding="utf-8")
        scan = markdown_linter().scan_path(folder)
        for failure in scan.scan_failures:
            message = f"{failure.rule_id.upper()} {failure.rule_name}: {failure.rule_description}"
            path = by_name[Path(failure.scan_file).name]
            yield Finding("GATE_MARKDOWN_LINT", message, "error", path, failure.line_number)


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


def markdown_linter() -> Any:
    try:
        api: Any = importlib.import_module("pymarkdown.api")
    except ImportError as exc:
        raise Fault(
            Kind.UNSUPPORTED,
            "The Markdown linter is not installed.",
            code="TOOLCHAIN_MISSING",
            details={"tool": "pymarkdownlnt"},
            suggested_fix="Install the `launch` extra.",
        ) from exc
    linter = api.PyMarkdownApi().set_boolean_property("extensions.front-matter.enabled", True)
    # Reference pages repeat headings such as "Examples" below different symbols.
    linter = linter.set_boolean_property("plugins.md024.siblings_only", True)
    for rule in _DISABLED_RULES:
        linter = linter.disable_rule_by_identifier(rule)
    return linter
