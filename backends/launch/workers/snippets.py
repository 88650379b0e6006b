"""W3: builds the snippet catalogue from the repository's documents and examples, and checks the syntax of each."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from backends.launch.serialization import digest
from backends.launch.surface import prose
from backends.launch.workers import document, languages, markdown
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.page_sources import plain
from gateway.contract import Json

_MAX_LINES: Final = 80
_IMPORT: Final = re.compile(
    r"^\s*(?:import|from|using|require|use|#include)\s*\(?\s*[<\"']?([A-Za-z_][\w./:-]*)", re.MULTILINE
)


def run(context: WorkerContext) -> None:
    inventory = context.read("repo_inventory.json")
    catalog: dict[str, Json] = {}
    for snippet in (*_from_documents(context, inventory), *_from_examples(context, inventory)):
        catalog.setdefault(snippet["snippet_id"], snippet)
    context.write("snippet_catalog.json", {"schema_version": "1.0", "snippets": list(catalog.values())})


def _from_documents(context: WorkerContext, inventory: Json) -> Iterator[Json]:
    for name in inventory["doc_entrypoints"]:
        text = _read_text(context, name)
        text = document.from_rst(text) if not name.lower().endswith(".md") else text
        for fence in markdown.fences(text):
            language = languages.normalize_language(fence.language_tag)
            if fence.is_closed and languages.can_parse(language) and _is_showable(fence.code):
                tags = ["install" if language == "bash" else "quickstart", markdown.slugify(fence.heading or "usage")]
                yield _snippet(language, fence.code, name, fence.start + 1, fence.end - 1, tags, fence.heading)


def _from_examples(context: WorkerContext, inventory: Json) -> Iterator[Json]:
    for name in inventory["example_paths"]:
        code = _read_text(context, name)
        language = languages.LANGUAGE_BY_EXTENSION[PurePosixPath(name).suffix.lower()]
        if _is_showable(code):
            stem = PurePosixPath(name).stem.replace("_", " ").replace("-", " ")
            count = len(code.splitlines())
            yield _snippet(language, code, name, 1, max(1, count), ["example", markdown.slugify(stem)], stem)


def _is_showable(code: str) -> bool:
    """Whether the code is short and contains no fence or shortcode. Hugo runs shortcodes inside fences too."""
    return (
        bool(code.strip())
        and len(code.splitlines()) <= _MAX_LINES
        and not any(bad in code for bad in ("```", "{{<", "{{%", "\0", "�"))
    )


def _snippet(language: str, code: str, path: str, start: int, end: int, tags: list[str], title: str) -> Json:
    code = "".join(f"{line.rstrip()}\n" for line in code.expandtabs(4).strip("\n").splitlines())
    return {
        "snippet_id": f"snip_{digest(f'{language}|{code}'.encode())[:16]}",
        "language": language,
        "title": plain(prose.inline(title))[:80],
        "tags": tags,
        "source": {"path": path, "start_line": start, "end_line": max(start, end)},
        "code": code,
        "requirements": {"dependencies": sorted(set(_IMPORT.findall(code)))[:20]},
        "validation": {"syntax_ok": languages.syntax_error(language, code) is None, "parser": "tree-sitter"},
    }


def _read_text(context: WorkerContext, path: str) -> str:
    return context.repo.joinpath(path).read_bytes().decode("utf-8", "replace")
