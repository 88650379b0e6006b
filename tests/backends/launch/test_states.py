"""The state machine allows the transitions of its tables and no others."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.launch.events import Span
from backends.launch.run import Run
from backends.launch.states import FORWARD, REWIND, STABLE, TERMINAL, State, can_move
from gateway.errors import Fault

HAPPY_PATH = [
    *("CREATED", "CLONED_INPUTS", "INGESTED", "FACTS_READY", "PLAN_READY", "DRAFTING", "DRAFT_READY", "LINKING"),
    *("VALIDATING", "READY_FOR_PR", "PR_OPENED", "DONE"),
]


def test_every_transition_of_a_successful_run_is_allowed() -> None:
    assert all(can_move(State(old), State(new)) for old, new in itertools.pairwise(HAPPY_PATH))


def test_run_moves_between_validating_and_fixing_after_a_failed_validation() -> None:
    assert can_move(State.VALIDATING, State.FIXING)
    assert can_move(State.FIXING, State.VALIDATING)
    assert not can_move(State.FIXING, State.READY_FOR_PR)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_terminal_states_have_no_transitions(state: State) -> None:
    assert FORWARD[state] == frozenset()
    assert state not in REWIND


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_every_non_terminal_state_can_move_to_failed_or_cancelled(state: State) -> None:
    assert {State.FAILED, State.CANCELLED} <= FORWARD[state]


def test_resume_rewinds_to_a_stable_state() -> None:
    assert {REWIND[state] for state in (State.DRAFTING, State.LINKING, State.VALIDATING, State.FIXING)} <= STABLE


@settings(max_examples=40, deadline=None)
@given(transitions=st.lists(st.tuples(st.sampled_from(list(State)), st.booleans()), max_size=15))
def test_no_sequence_of_requests_makes_a_transition_outside_the_tables(transitions: list[tuple[State, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = {"product_slug": "3d", "required_sections": ["docs"]}
        run = Run.create("r_model_00000000", Path(folder) / "run", config, Span())
        for target, rewind in transitions:
            before = run.state()
            fault = _move(run, target, rewind)
            assert (fault is None) == can_move(before, target, rewind=rewind)
            assert run.state() == (target if fault is None else before)
            if fault is not None and before is State.CANCELLED:
                assert fault.code == "CANCELLED"
            elif fault is not None:
                assert (fault.code, fault.details["current_state"]) == ("ILLEGAL_STATE", before)
        moves = [event["payload"] for event in run.events() if event["type"] == "RUN_STATE_CHANGED"]
        for move in moves:
            assert can_move(State(move["old_state"]), State(move["new_state"]), rewind="reason" in move)


def _move(run: Run, target: State, rewind: bool) -> Fault | None:
    try:
        run.move(target, Span(), rewind="TEST" if rewind else None)
    except Fault as fault:
        return fault
    return None
