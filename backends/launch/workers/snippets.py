"""W3: code of the repository that pages may show: from its documents and examples, each parsed by a real parser."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from backends.launch.serialization import digest
from backends.launch.workers import languages, markdown
from backends.launch.workers.context import Bench
from gateway.contract import Json

_MAX_LINES: Final = 80
_IMPORT: Final = re.compile(
    r"^\s*(?:import|from|using|require|use|#include)\s*\(?\s*[<\"']?([A-Za-z_][\w./:-]*)", re.MULTILINE
)


def run(bench: Bench) -> None:
    inventory = bench.read("repo_inventory.json")
    catalog: dict[str, Json] = {}
    for snippet in (*_of_documents(bench, inventory), *_of_examples(bench, inventory)):
        catalog.setdefault(snippet["snippet_id"], snippet)
    bench.write("snippet_catalog.json", {"schema_version": "1.0", "snippets": list(catalog.values())})


def _of_documents(bench: Bench, inventory: Json) -> Iterator[Json]:
    for name in inventory["doc_entrypoints"]:
        text = _text(bench, name)
        for fence in markdown.fences(text):
            language = languages.spoken(fence.word)
            if fence.closed and languages.parsable(language) and _showable(fence.code):
                tags = ["install" if language == "bash" else "quickstart", markdown.slug(fence.heading or "usage")]
                yield _snippet(language, fence.code, name, fence.start + 1, fence.end - 1, tags, fence.heading)


def _of_examples(bench: Bench, inventory: Json) -> Iterator[Json]:
    for name in inventory["example_paths"]:
        code = _text(bench, name)
        language = languages.LANGUAGES[PurePosixPath(name).suffix.lower()]
        if _showable(code):
            stem = PurePosixPath(name).stem.replace("_", " ").replace("-", " ")
            count = len(code.splitlines())
            yield _snippet(language, code, name, 1, max(1, count), ["example", markdown.slug(stem)], stem)


def _showable(code: str) -> bool:
    """Short, and free of what would end the fence or be acted on by the site: shortcodes work inside fences too."""
    return (
        bool(code.strip())
        and len(code.splitlines()) <= _MAX_LINES
        and not any(bad in code for bad in ("```", "{{", "\0", "�"))
    )


def _snippet(language: str, code: str, path: str, start: int, end: int, tags: list[str], title: str) -> Json:
    code = "".join(f"{line.rstrip()}\n" for line in code.expandtabs(4).strip("\n").splitlines())
    return {
        "snippet_id": f"snip_{digest(f'{language}|{code}'.encode())[:16]}",
        "language": language,
        "title": markdown.plain(title)[:80],
        "tags": tags,
        "source": {"path": path, "start_line": start, "end_line": max(start, end)},
        "code": code,
        "requirements": {"dependencies": sorted(set(_IMPORT.findall(code)))[:20]},
        "validation": {"syntax_ok": languages.syntax_error(language, code) is None, "parser": "tree-sitter"},
    }


def _text(bench: Bench, path: str) -> str:
    return bench.repo.joinpath(path).read_bytes().decode("utf-8", "replace")
