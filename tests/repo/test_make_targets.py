"""CONTRIBUTING.md lists every target of the Makefile that has a description."""

import re

from tests.repo.documents import ROOT

TARGETS = re.findall(r"^([a-z][a-z-]*):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


def test_contributing_lists_every_described_target() -> None:
    assert {"run", "lowest", "release-files"} <= set(TARGETS)
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [target for target in TARGETS if not re.search(rf"^make {target}\b(?!-)", text, re.MULTILINE)] == []
