"""mkdocs hooks: add the pages in the root of the repository to the site.

Links between pages are rewritten to their location on the site. Links to code, which is not on the site, become plain
text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
TOP: Final = {
    "README.md": "overview.md",  # mkdocs would treat README.md as the home page
    **{name: name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")},
}
"""Pages in the root of the repository, and their names on the site."""

_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<words>[^\]\n]*)\]\((?P<place>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    for name, site_name in TOP.items():
        files.append(File.generated(config, site_name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = ROOT if page.file.src_uri in TOP.values() else DOCS
    folder = (source / page.file.src_uri).parent
    fences = [found.span() for found in _FENCE.finditer(markdown)]

    def rewrite(found: re.Match[str]) -> str:
        in_fence = any(start <= found.start() < end for start, end in fences)
        location = found["place"]
        if in_fence or not location or re.match(r"[a-z]+:", location):
            return found[0]
        target = (folder / location).resolve()
        on_site = _on_site(target)
        if on_site is None:
            return found["words"]
        relative = posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found['image']}[{found['words']}]({relative}{found['anchor'] or ''})"

    return _LINK.sub(rewrite, markdown)


def _on_site(target: Path) -> str | None:
    """Return the path of a repository file relative to the root of the site, or None if it is not on the site."""
    if target.parent == ROOT and target.name in TOP:
        return TOP[target.name]
    if target.is_file() and target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return None
