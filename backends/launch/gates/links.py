"""Every link from a page into the site leads to something that Hugo built."""

import posixpath
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from backends.launch.gates.context import Finding, Subject
from backends.launch.workers import markdown


def check(subject: Subject) -> Iterator[Finding]:
    roots = _roots(subject)
    urls = {page["output_path"]: page["url_path"] for page in subject.plan}
    for path in subject.pages:
        text, above = subject.body(path)
        for line in markdown.lines(text):
            if line.code:
                continue
            for link in markdown.LINK.finditer(line.text):
                if not leads_somewhere(link[2], urls[path], roots):
                    message = f"The link to {link[2]} leads nowhere."
                    yield Finding("GATE_LINK_BROKEN", message, "error", path, line.number + above)


def leads_somewhere(target: str, page: str, roots: list[Path]) -> bool:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc or not parts.path:
        return True  # outside the site, or inside the page
    place = posixpath.normpath(posixpath.join(page, unquote(parts.path))).lstrip("/")
    return any((root / place / "index.html").is_file() or (root / place).is_file() for root in roots)


def _roots(subject: Subject) -> list[Path]:
    """Where builds were written: one folder, or one for each section."""
    public = subject.public
    if not public.is_dir():
        return []
    return [public, *sorted(child for child in public.iterdir() if child.is_dir())]
