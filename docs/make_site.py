"""What mkdocs is told beside mkdocs.yml: the pages at the top of the repository belong to the site too.

A link from page to page is turned to where the page is on the site; a link to code, which the site does not have,
becomes plain words.
"""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
TOP: Final = {
    "README.md": "overview.md",  # under its own name it would be taken for the home page
    **{name: name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
}
"""Pages at the top of the repository, and their names on the site."""

_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<words>[^\]\n]*)\]\((?P<place>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    for name, shown in TOP.items():
        files.append(File.generated(config, shown, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = ROOT if page.file.src_uri in TOP.values() else DOCS
    folder = (source / page.file.src_uri).parent
    fences = [found.span() for found in _FENCE.finditer(markdown)]

    def turned(found: re.Match[str]) -> str:
        inside = any(start <= found.start() < end for start, end in fences)
        place = found["place"]
        if inside or not place or re.match(r"[a-z]+:", place):
            return found[0]
        target = (folder / place).resolve()
        on_site = _on_site(target)
        if on_site is None:
            return found["words"]
        return f"{found['image']}[{found['words']}]({on_site}{found['anchor'] or ''})"

    return _LINK.sub(turned, markdown)


def _on_site(target: Path) -> str | None:
    """Where a file of the repository is, seen from the top of the site."""
    if target.parent == ROOT and target.name in TOP:
        return TOP[target.name]
    if target.is_file() and target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return None
