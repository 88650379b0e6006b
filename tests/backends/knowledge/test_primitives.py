"""Unit tests of ids, timestamps, text keys and chunks."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.knowledge import ids, timestamps
from backends.knowledge.chunks import split, title_of
from backends.knowledge.text_keys import fold, words
from gateway.errors import Fault


@given(st.lists(st.integers(0, 2**47), min_size=2, max_size=30))
def test_ids_increase_even_if_the_clock_goes_backwards(clock: list[int]) -> None:
    created = [""]
    for moment in clock:
        created.append(ids.next_id(created[-1], moment))
    assert all(before < after for before, after in pairwise(created))
    assert all(ids.ULID.fullmatch(each) for each in created[1:])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-02-10", "2026-02-10T00:00:00.000Z"),
        ("2026-02-10T14:30:00Z", "2026-02-10T14:30:00.000Z"),
        ("2026-02-10T14:30:00.5+02:00", "2026-02-10T12:30:00.500Z"),
        ("0001-01-01", "0001-01-01T00:00:00.000Z"),
    ],
)
def test_timestamps_are_normalized_to_sortable_utc(value: str, expected: str) -> None:
    assert timestamps.parse(value, "as_of") == expected


@pytest.mark.parametrize("value", ["", "soon", "2026-13-01", "0001-01-01T00:00:00+14:00", "9" * 60])
def test_invalid_timestamp_is_rejected(value: str) -> None:
    with pytest.raises(Fault):
        timestamps.parse(value, "as_of")


@given(st.text())
def test_fold_is_idempotent_and_ignores_surrounding_white_space(text: str) -> None:
    once = fold(text)
    assert fold(f"  {once}\n") == once
    assert fold(f" {text}\t") == once


@given(st.text(alphabet=st.characters(max_codepoint=0x17F, exclude_characters="İı")))
def test_fold_ignores_case(text: str) -> None:
    assert fold(text.upper()) == fold(text.lower()) == fold(text)


def test_fold_ignores_width_and_kind_of_white_space() -> None:
    assert fold("Ｇａｔｅ\u3000\t House") == fold("gate house") == "gate house"
    assert fold("gatehouse") != fold("gate house")


@given(st.text())
def test_words_are_alphanumeric_and_distinct(text: str) -> None:
    found = words(text)
    assert len(found) == len(set(found)) <= 32
    assert all(re.fullmatch(r"[^\W_]+", word) for word in found)


@given(st.lists(st.text(alphabet=st.sampled_from("ab .\n\r\t"), max_size=700), max_size=8).map("\n\n".join))
def test_chunks_lose_only_white_space_and_have_bounded_length(text: str) -> None:
    found = split(text)
    chunks = [chunk.text for chunk in found]
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert all(text[chunk.start : chunk.end].split() == chunk.text.split() for chunk in found)
    assert all(before.end <= after.start for before, after in pairwise(found))
    assert all(chunk.strip() == chunk and 0 < len(chunk) <= 1000 for chunk in chunks)
    assert all(0 < len(title_of(chunk)) <= 100 for chunk in chunks)


def test_long_paragraph_is_split_after_a_sentence() -> None:
    text = "A sentence of some length here. " * 60
    assert all(chunk.text.endswith(".") for chunk in split(text))
