"""Relative links in the documents are valid."""

from pathlib import Path

import pytest

from tests.repo.documents import ROOT, anchors, documents, links, relative_path


@pytest.mark.parametrize("document", documents(), ids=relative_path)
def test_every_relative_link_points_to_an_existing_file_and_heading(document: Path) -> None:
    broken: list[str] = []
    for link in links(document):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or not target.is_relative_to(ROOT) or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_readme_links_to_every_document_in_the_root() -> None:
    linked = set(links(ROOT / "README.md"))
    assert {path.name for path in ROOT.glob("*.md")} - {"README.md"} <= linked
