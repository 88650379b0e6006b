"""The state machine of a run. Every state change of this backend is checked against the tables in this module."""

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
"""States at which a resume starts and stops."""

VALIDATABLE: Final = frozenset({State.LINKING, State.VALIDATING, State.FIXING, State.READY_FOR_PR})
"""States in which a run can be validated: from LINKING until the pull request is opened."""

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
    # A later validation that finds issues revokes READY_FOR_PR.
    State.READY_FOR_PR: State.VALIDATING,
}
"""The allowed backward transitions, each recorded as a rewind. A resume uses the first four."""

SECTIONS: Final = ("products", "docs", "reference", "kb", "blog")


def can_move(old: State, new: State, *, rewind: bool = False) -> bool:
    return REWIND.get(old) == new if rewind else new in FORWARD[old]
