"""The state machine of a run. Every change of state in this backend is judged here, and nowhere else."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    CREATED = "CREATED"
    CLONED_INPUTS = "CLONED_INPUTS"
    INGESTED = "INGESTED"
    FACTS_READY = "FACTS_READY"
    PLAN_READY = "PLAN_READY"
    DRAFTING = "DRAFTING"
    DRAFT_READY = "DRAFT_READY"
    LINKING = "LINKING"
    VALIDATING = "VALIDATING"
    FIXING = "FIXING"
    READY_FOR_PR = "READY_FOR_PR"
    PR_OPENED = "PR_OPENED"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELLED})
STABLE: Final = frozenset({State.PLAN_READY, State.DRAFT_READY, State.READY_FOR_PR})
"""Where a resume may stop and start again."""

VALIDATABLE: Final = frozenset({State.LINKING, State.VALIDATING, State.FIXING, State.READY_FOR_PR})
"""At least LINKING, and not yet a pull request."""

_NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset({State.CLONED_INPUTS}),
    State.CLONED_INPUTS: frozenset({State.INGESTED}),
    State.INGESTED: frozenset({State.FACTS_READY}),
    State.FACTS_READY: frozenset({State.PLAN_READY}),
    State.PLAN_READY: frozenset({State.DRAFTING}),
    State.DRAFTING: frozenset({State.DRAFT_READY}),
    State.DRAFT_READY: frozenset({State.LINKING}),
    State.LINKING: frozenset({State.VALIDATING}),
    State.VALIDATING: frozenset({State.READY_FOR_PR, State.FIXING}),
    State.FIXING: frozenset({State.VALIDATING}),
    State.READY_FOR_PR: frozenset({State.PR_OPENED}),
    State.PR_OPENED: frozenset({State.DONE}),
}

FORWARD: Final[Mapping[State, frozenset[State]]] = {
    state: frozenset[State]() if state in TERMINAL else _NEXT[state] | {State.FAILED, State.CANCELLED}
    for state in State
}

REWIND: Final[Mapping[State, State]] = {
    State.DRAFTING: State.PLAN_READY,
    State.LINKING: State.DRAFT_READY,
    State.VALIDATING: State.DRAFT_READY,
    State.FIXING: State.DRAFT_READY,
    # Ready means validated: a later validation that finds something takes the readiness back.
    State.READY_FOR_PR: State.VALIDATING,
}
"""The only ways back, each recorded as a rewind: the first four by a resume."""

SECTIONS: Final = ("products", "docs", "reference", "kb", "blog")


def may_move(old: State, new: State, *, rewind: bool = False) -> bool:
    return REWIND.get(old) == new if rewind else new in FORWARD[old]
