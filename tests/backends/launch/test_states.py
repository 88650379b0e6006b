"""The state machine: forward along the table, back along the rewinds, and no other way."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.launch.events import Span
from backends.launch.run import Run
from backends.launch.states import FORWARD, REWIND, STABLE, TERMINAL, State, may_move
from gateway.errors import Fault

LINE = [
    *("CREATED", "CLONED_INPUTS", "INGESTED", "FACTS_READY", "PLAN_READY", "DRAFTING", "DRAFT_READY", "LINKING"),
    *("VALIDATING", "READY_FOR_PR", "PR_OPENED", "DONE"),
]


def test_the_way_of_a_run_that_nothing_holds_up_is_in_the_table() -> None:
    assert all(may_move(State(old), State(new)) for old, new in itertools.pairwise(LINE))


def test_a_validation_that_fails_leads_to_a_fix_and_back() -> None:
    assert may_move(State.VALIDATING, State.FIXING)
    assert may_move(State.FIXING, State.VALIDATING)
    assert not may_move(State.FIXING, State.READY_FOR_PR)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_an_end_is_an_end(state: State) -> None:
    assert FORWARD[state] == frozenset()
    assert state not in REWIND


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_every_other_state_may_fail_or_be_cancelled(state: State) -> None:
    assert {State.FAILED, State.CANCELLED} <= FORWARD[state]


def test_a_resume_goes_back_to_a_stable_state() -> None:
    assert {REWIND[state] for state in (State.DRAFTING, State.LINKING, State.VALIDATING, State.FIXING)} <= STABLE


@settings(max_examples=40, deadline=None)
@given(wishes=st.lists(st.tuples(st.sampled_from(list(State)), st.booleans()), max_size=15))
def test_no_sequence_of_wishes_makes_a_move_that_the_tables_do_not_have(wishes: list[tuple[State, bool]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        config = {"product_slug": "3d", "required_sections": ["docs"]}
        run = Run.create("r_model_00000000", Path(place) / "run", config, Span())
        for wish, rewind in wishes:
            before = run.state()
            fault = _refusal(run, wish, rewind)
            assert (fault is None) == may_move(before, wish, rewind=rewind)
            assert run.state() == (wish if fault is None else before)
            if fault is not None and before is State.CANCELLED:
                assert fault.code == "CANCELLED"
            elif fault is not None:
                assert (fault.code, fault.details["current_state"]) == ("ILLEGAL_STATE", before)
        moves = [event["payload"] for event in run.events() if event["type"] == "RUN_STATE_CHANGED"]
        for move in moves:
            assert may_move(State(move["old_state"]), State(move["new_state"]), rewind="reason" in move)


def _refusal(run: Run, wish: State, rewind: bool) -> Fault | None:
    try:
        run.move(wish, Span(), rewind="TEST" if rewind else None)
    except Fault as fault:
        return fault
    return None
