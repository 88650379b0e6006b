"""Gate `links`: every internal link of a page has a target in the built site, down to the heading."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers import markdown


def check(context: GateContext) -> Iterator[Finding]:
    roots = _build_roots(context)
    anchors = _Anchors(roots)
    urls = {page["output_path"]: page["url_path"] for page in context.plan}
    for path in context.pages:
        text, line_offset = context.body(path)
        for line in markdown.lines(text):
            if line.is_code:
                continue
            for link in markdown.LINK.finditer(line.text):
                if not link_resolves(link[2], urls[path], roots):
                    message = f"The link to {link[2]} leads nowhere."
                    yield Finding("GATE_LINK_BROKEN", message, "error", path, line.number + line_offset)
                elif not anchors.has(link[2], urls[path]):
                    message = f"The link to {link[2]} leads nowhere: the page has no such heading."
                    yield Finding("GATE_LINK_ANCHOR", message, "error", path, line.number + line_offset)


def link_resolves(target: str, page: str, roots: list[Path]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return True  # external link, or anchor within the page
    target_path = posixpath.normpath(posixpath.join(page, unquote(parts.path))).lstrip("/")
    return any((root / target_path / "index.html").is_file() or (root / target_path).is_file() for root in roots)


class _Anchors:
    """The ids of built pages, read once per page."""

    def __init__(self, roots: list[Path]) -> None:
        self._roots = roots
        self._ids: dict[str, frozenset[str]] = {}

    def has(self, target: str, page: str) -> bool:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or not parts.fragment:
            return True
        path = (
            posixpath.normpath(posixpath.join(page, unquote(parts.path))).lstrip("/") if parts.path else page.strip("/")
        )
        if path not in self._ids:
            self._ids[path] = self._read(path)
        return unquote(parts.fragment) in self._ids[path]

    def _read(self, path: str) -> frozenset[str]:
        for root in self._roots:
            file = root / path / "index.html"
            if file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                return frozenset(re.findall(r"\bid=\"?([^\s\">]+)", text))
        return frozenset()


def _build_roots(context: GateContext) -> list[Path]:
    """Return the output folders of the builds: one for the site, or one per section."""
    public = context.public
    if not public.is_dir():
        return []
    return [public, *sorted(child for child in public.iterdir() if child.is_dir())]
