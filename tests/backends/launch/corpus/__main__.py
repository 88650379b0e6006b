"""Launches every package of the corpus on a real gateway and prints a table: `make launch-corpus`."""

import argparse
import asyncio
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import build_run_config
from backends.launch.surface import javascript
from backends.launch.workers import markdown
from backends.launch.workers.frontmatter import body_of
from tests.backends.launch.corpus.counting import public_names
from tests.backends.launch.corpus.packages import PACKAGES, Package, fetch
from tests.backends.launch.surface.test_languages import SOURCES
from tests.conftest import run_gateway

Json = dict[str, Any]
FIXTURES = ("kotlin", "csharp", "cpp", "ruby", "php", "swift")
PLATFORMS = {"csharp": "dotnet"}
HEADER = ("package", "state", "pages", "documented / public", "empty sections", "claims without a fact", "seconds")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Launch real packages and print a table.")
    parser.add_argument("--folder", type=Path, help="keep downloads and runs in this folder")
    parser.add_argument("--only", default="", help="launch only packages whose name contains this text")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        await launch_all(arguments.folder.resolve(), arguments.only)
        return
    with tempfile.TemporaryDirectory(prefix="launch-corpus-") as folder:
        await launch_all(Path(folder), arguments.only)


async def launch_all(folder: Path, only: str) -> None:
    work = folder / f"run-{int(time.time())}"
    root = work / "repositories"
    sample.create_repository(root / "site", sample.SITE)
    options: Json = {
        "local_roots": [str(root)],
        "site_repo_url": str(root / "site"),
        "github_api": None,
        "github_clone_base": root.as_uri(),
        "chromium": "chromium",
    }
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    backends = {"launch": {"module": "backends.launch", "options": options}}
    async with run_gateway(work, backends=backends) as gateway:
        for package in [*PACKAGES, *(Package(language, f"{language} fixture", "1") for language in FIXTURES)]:
            if only in package.name:
                try:
                    row = await _launch(package, folder, work, gateway, options)
                except Exception as exc:
                    row = [package.name, f"not launched: {str(exc)[:120]}", *[""] * 5]
                print("| " + " | ".join(row) + " |", flush=True)


async def _launch(package: Package, folder: Path, work: Path, gateway: Any, options: Json) -> list[str]:
    owner, name = "corpus", f"{package.slug.replace(' ', '-')}-{package.platform}"
    repository = work / "repositories" / owner / name
    is_fixture = package.platform in FIXTURES
    if is_fixture:
        readme = (
            f"# Shapes for {package.platform}\n\nShapes reads scenes, scales them and converts them to other files.\n"
        )
        await asyncio.to_thread(
            sample.create_repository, repository, {**SOURCES[package.platform], "README.md": readme}
        )
        title = "Shapes"
    else:
        sources = await asyncio.to_thread(fetch, package, folder / "downloads")
        files = {p.relative_to(sources).as_posix(): p for p in sources.rglob("*") if p.is_file()}
        texts = {path: _text(file) for path, file in files.items() if ".git/" not in path}
        kept = {path: text for path, text in texts.items() if text is not None}
        await asyncio.to_thread(sample.create_repository, repository, kept)
        title = package.name.rpartition("/")[2].rpartition(":")[2]
    platform = PLATFORMS.get(package.platform, package.platform)
    config = build_run_config(
        Options.model_validate(options), "3d", platform, "en", f"https://github.com/{owner}/{name}", "0" * 40, title
    )
    config = {**config, "product_slug": package.slug.replace(" ", "-"), "family": package.slug.replace(" ", "-")}
    folders = config["site_layout"]["subdomain_roots"].values()
    config["allowed_paths"] = [f"{each}/{config['family']}" for each in folders]
    started = time.monotonic()
    answer = await gateway.call("launch_start_run", {"run_config": config})
    run_id = answer["result"]["structuredContent"]["run_id"]
    run = work / "data" / "files" / "default" / "launch" / "runs" / run_id
    state = await _until_settled(run)
    seconds = time.monotonic() - started
    pages = [page for page in (run / "work/site/content").rglob("*.md") if f"/{config['family']}/" in str(page)]
    documented = _documented(run)
    if is_fixture:
        public = {symbol["qualified_name"] for symbol in _surface(run)}
    else:
        entry = _entry(sources) if package.platform in ("typescript", "javascript") else ""
        scratch = folder / "counting" / f"{package.platform}-{package.slug}"
        public = await asyncio.to_thread(public_names, package, sources, scratch, entry)
    missing = sorted(public - documented)
    (work / f"missing-{name}.json").write_text(json.dumps(missing, indent=1))
    share = f"{len(public) - len(missing)} / {len(public)}" + (
        f" ({100 * (1 - len(missing) / len(public)):.0f} %)" if public else ""
    )
    empty, uncited = _problems(run)
    return [package.name, state, str(len(pages)), share, str(empty), str(uncited), f"{seconds:.0f}"]


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return None


def _entry(sources: Path) -> str:
    files = {p.relative_to(sources).as_posix(): p.read_bytes() for p in sources.rglob("*") if p.is_file()}
    return javascript._entries(javascript._package(files), files)[0][1]


async def _until_settled(run: Path) -> str:
    async with asyncio.timeout(900):
        while True:
            snapshot = json.loads((run / "snapshot.json").read_bytes())
            open_issues = _blockers(snapshot)
            if snapshot["run_state"] in ("READY_FOR_PR", "FAILED"):
                return snapshot["run_state"] + (f": {open_issues[0]['message'][:100]}" if open_issues else "")
            if snapshot["run_state"] == "VALIDATING" and open_issues:
                first = open_issues[0]
                return f"VALIDATING: {len(open_issues)} issues, {first['error_code']} {first['message'][:80]}"
            if any(each["issue_id"].startswith("iss_run_") for each in open_issues):
                return f"{snapshot['run_state']}: {open_issues[0]['message'][:100]}"
            await asyncio.sleep(0.2)


def _blockers(snapshot: Json) -> list[Json]:
    found = [each for each in snapshot["issues"] if each["status"] == "OPEN"]
    return [each for each in found if each["severity"] in ("blocker", "error")]


def _surface(run: Path) -> list[Json]:
    path = run / "artifacts" / "api_surface.json"
    return json.loads(path.read_bytes())["symbols"] if path.exists() else []


def _documented(run: Path) -> set[str]:
    """Return the names that have a heading of their own on a reference page."""
    pages = (run / "work/site/content").rglob("*.md")
    return {found for page in pages for found in re.findall(r"^#{2,3} `([^`]+)`$", page.read_text(), re.MULTILINE)}


def _problems(run: Path) -> tuple[int, int]:
    """Count empty sections and statements without a claim on the pages themselves, apart from the gates."""
    empty = uncited = 0
    for page in (run / "drafts").rglob("*.md"):
        lines = [line for line in markdown.lines(body_of(page.read_text())) if line.text.strip()]
        for line, after in zip(lines, [*lines[1:], None], strict=True):
            heading = markdown.HEADING.match(line.text) if not line.is_code else None
            next_heading = markdown.HEADING.match(after.text) if after is not None and not after.is_code else None
            if heading and (after is None or (next_heading and len(next_heading[1]) <= len(heading[1]))):
                empty += 1
            plain = markdown.LINK.sub("", line.text).strip("-| :`")
            structural = line.is_code or heading or line.text.startswith(("Source: ", "| Parameter", "| ---"))
            is_name = re.fullmatch(r"- `[^`]+`", line.text) is not None
            if plain and not structural and not is_name and not markdown.MARKER.search(line.text):
                uncited += 1
    return empty, uncited


if __name__ == "__main__":
    asyncio.run(main())
