"""Ids, times, keys and chunks, each by itself."""

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
def test_ids_go_upwards_whatever_the_clock_does(clock: list[int]) -> None:
    made = [""]
    for moment in clock:
        made.append(ids.next_id(made[-1], moment))
    assert all(before < after for before, after in pairwise(made))
    assert all(ids.ULID.fullmatch(each) for each in made[1:])


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ("2026-02-10", "2026-02-10T00:00:00.000Z"),
        ("2026-02-10T14:30:00Z", "2026-02-10T14:30:00.000Z"),
        ("2026-02-10T14:30:00.5+02:00", "2026-02-10T12:30:00.500Z"),
        ("0001-01-01", "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_kept_in_utc_so_that_their_text_sorts(given_: str, meant: str) -> None:
    assert timestamps.parse(given_, "as_of") == meant


@pytest.mark.parametrize("given_", ["", "soon", "2026-13-01", "0001-01-01T00:00:00+14:00", "9" * 60])
def test_what_is_no_time_is_refused(given_: str) -> None:
    with pytest.raises(Fault):
        timestamps.parse(given_, "as_of")


@given(st.text())
def test_folding_is_stable_and_blind_to_blanks_around(text: str) -> None:
    once = fold(text)
    assert fold(f"  {once}\n") == once
    assert fold(f" {text}\t") == once


@given(st.text(alphabet=st.characters(max_codepoint=0x17F, exclude_characters="İı")))
def test_folding_is_blind_to_case(text: str) -> None:
    assert fold(text.upper()) == fold(text.lower()) == fold(text)


def test_folding_is_blind_to_width_and_to_how_blanks_are_written() -> None:
    assert fold("Ｇａｔｅ\u3000\t House") == fold("gate house") == "gate house"
    assert fold("gatehouse") != fold("gate house")


@given(st.text())
def test_words_are_plain_and_different(text: str) -> None:
    found = words(text)
    assert len(found) == len(set(found)) <= 32
    assert all(re.fullmatch(r"[^\W_]+", word) for word in found)


@given(st.lists(st.text(alphabet=st.sampled_from("ab .\n\r\t"), max_size=700), max_size=8).map("\n\n".join))
def test_chunks_lose_nothing_but_blanks_and_stay_short(text: str) -> None:
    chunks = split(text)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert all(chunk.strip() == chunk and 0 < len(chunk) <= 1000 for chunk in chunks)
    assert all(0 < len(title_of(chunk)) <= 100 for chunk in chunks)


def test_a_long_paragraph_is_cut_after_a_sentence() -> None:
    text = "A sentence of some length here. " * 60
    assert all(chunk.endswith(".") for chunk in split(text))
