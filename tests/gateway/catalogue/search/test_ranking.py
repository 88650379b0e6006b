"""The ranking of the tool search: words, stems, fields, and the fusion of two rankings."""

import pytest

from gateway.catalogue.search.index import fuse, to_document
from gateway.catalogue.search.ranking import MAX_QUERY_WORDS, TextIndex, words_of
from gateway.catalogue.search.tools import search_tool_definitions


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("createPullRequest", ["creat", "pull", "request"]),
        ("create_pull-request.v2", ["creat", "pull", "request", "v", "2"]),
        ("HTTPServer", ["http", "serv"]),
        ("The issues of a user", ["issu", "user"]),
        ("Straße grün 検索", ["straß", "grün", "検索"]),
        ("", []),
        ("\x00\ud800 ~~~", []),
    ],
)
def test_identifiers_are_split_into_stems_without_stop_words(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


def index(*tools: tuple[str, str]) -> TextIndex:
    return TextIndex([to_document("lab", {"name": name, "description": text}) for name, text in tools])


def test_name_counts_more_than_description() -> None:
    found = index(("other", "It can merge branches."), ("merge", "Combines two branches.")).search("merge", 5)
    assert found == [1, 0]


def test_rare_word_counts_more_than_a_frequent_one() -> None:
    tools = [(f"issue_{number}", "Handles an issue.") for number in range(9)]
    assert index(*tools, ("label", "Labels.")).search("issue label", 5)[0] == 9


def test_words_of_like_meaning_are_found_after_the_words_themselves() -> None:
    assert index(("remove_page", ""), ("delete_page", "")).search("delete page", 5) == [1, 0]


@pytest.mark.parametrize("query", ["", "~~~", "the of", "unknownword", "x" * 100_000, "\x00\ud800"])
def test_query_without_a_known_word_finds_nothing(query: str) -> None:
    assert index(("echo", "Echoes.")).search(query, 5) == []
    assert TextIndex([]).search(query, 5) == []


def test_words_after_the_first_of_a_long_query_are_ignored() -> None:
    assert index(("echo", "")).search(" ".join([*(f"w{n}x" for n in range(MAX_QUERY_WORDS)), "echo"]), 5) == []


def test_item_that_both_rankings_put_high_comes_first() -> None:
    assert fuse([[3, 1, 2], [1, 4]])[0] == 1
    assert fuse([[3, 1], []]) == [3, 1]
    assert fuse([[], []]) == []


def test_parameters_are_searched() -> None:
    schema = {"type": "object", "properties": {"latitude": {"description": "Degrees north.", "enum": ["polar"]}}}
    documents = [to_document("lab", {"name": "a"}), to_document("lab", {"name": "b", "inputSchema": schema})]
    for query in ("latitude", "degrees", "polar"):
        assert TextIndex(documents).search(query, 5) == [1]


def test_description_of_the_search_names_the_largest_namespaces() -> None:
    many = {f"n{number}": number for number in range(100)}
    text = search_tool_definitions(many)[0]["description"]
    assert "n99 (99)" in text
    assert "and 59 more" in text
    assert len(text) < 1500
