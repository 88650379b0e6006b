"""A reader who follows a link arrives."""

from pathlib import Path

import pytest

from tests.repo.documents import ROOT, anchors, documents, links, shown


@pytest.mark.parametrize("document", documents(), ids=shown)
def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist(document: Path) -> None:
    lost: list[str] = []
    for link in links(document):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or not target.is_relative_to(ROOT) or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_readme_leads_to_every_document_at_the_top() -> None:
    linked = set(links(ROOT / "README.md"))
    assert {path.name for path in ROOT.glob("*.md")} - {"README.md"} <= linked
