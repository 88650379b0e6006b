"""The check of retired words finds them in identifiers, comments and texts, and nowhere else."""

import pytest

from tests.repo import vocabulary


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("class Floor: ...\n", "Floor"),
        ("def is_told() -> None: ...\n", "is_told"),
        ("x = 1  # whoever comes first\n", "whoever"),
        ('"""Says it\n\nto nobody.\n"""\n', "nobody"),
        ('log.info("the backend went away")\n', "went away"),
    ],
)
def test_retired_word_is_reported_with_its_line(source: str, word: str) -> None:
    findings = list(vocabulary.scan_source("gateway/x.py", source))
    assert len(findings) == 1
    assert findings[0].startswith("gateway/x.py:")
    assert f": {word}: " in findings[0]


@pytest.mark.parametrize(
    "source",
    ["password = 'x'\n", "def floor_of() -> None: ...\n", "x = 1  # the keyword is doored\n"],
)
def test_plain_source_is_not_reported(source: str) -> None:
    assert list(vocabulary.scan_source("gateway/x.py", source)) == []


def test_product_of_a_backend_is_reported_in_text_and_in_the_path_of_a_file() -> None:
    assert list(vocabulary.scan_products("gateway/x.css", ".a {}\n.GODOT {}\n")) == [
        "gateway/x.css:2: GODOT: .GODOT {}"
    ]
    assert len(list(vocabulary.scan_products("gateway/roblox.py", ""))) == 1
    assert list(vocabulary.scan_products("gateway/x.py", "robot = got = 1\n")) == []


@pytest.mark.parametrize(
    "line",
    [
        "An empty folder becomes a game, and an empty Studio a wood.",
        "Every failure is told in one form.",
        "3 destroys or leaves the house",
        "What is told of calls to whoever watches",
        "In a second terminal, put the command and the key at hand:",
        "Be an MCP server on the standard streams.",
        "It says how to mend it.",
        "A code is good once, for a day.",
    ],
)
def test_figure_of_speech_in_a_document_is_reported(line: str) -> None:
    assert len(list(vocabulary.scan_text("docs/x.md", f"# Title\n\n{line}\n"))) == 1


def test_plain_document_is_not_reported() -> None:
    text = "A key is valid for 30 days.\nGatehouse is a gateway.\nEach call passes the same stages.\n"
    assert list(vocabulary.scan_text("docs/x.md", text)) == []


def test_repository_contains_no_retired_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert vocabulary.main() == 0, capsys.readouterr().out
