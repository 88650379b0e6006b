"""The most that checking one value can cost, at each depth of the arguments."""

from collections import Counter, defaultdict
from typing import Final

from gateway.catalogue.schema.bounds import MAX_JSON_DEPTH, BadSchema
from gateway.catalogue.schema.price import BUDGET
from gateway.catalogue.schema.survey import State, Survey

_MAX_CHAIN: Final = 64
_MAX_TANGLE: Final = 20_000
MAX_ROOT: Final = 10_000


def by_depth(survey: Survey) -> tuple[list[int], list[int]]:
    """The most that one value can be charged at each depth of the arguments: units, and units for each character."""
    closures = _closures(survey.start)
    units = {state: sum(n * part.units for part, n in parts.items()) for state, parts in closures.items()}
    letters = {state: sum(n * part.letters for part, n in parts.items()) for state, parts in closures.items()}
    return _descend(survey.start, closures, units), _descend(survey.start, closures, letters)


def _closures(start: State) -> dict[State, Counter[State]]:
    """For every state a value can be sent to: all that apply to that same value, and how often."""
    memo: dict[State, Counter[State]] = {}
    tangle = 0

    def close(state: State, chain: int) -> Counter[State]:
        nonlocal tangle
        if state in memo:
            return memo[state]
        if chain > _MAX_CHAIN:
            raise BadSchema(f"a $ref leads back to itself, or through more than {_MAX_CHAIN} others")
        parts = Counter({state: 1})
        for part in state.in_place:
            for inner, times in close(part, chain + 1).items():
                parts[inner] += times * state.again
        tangle += len(parts)
        if tangle > _MAX_TANGLE:
            raise BadSchema("too many subschemas apply to one value")
        memo[state] = parts
        return parts

    reached: dict[State, Counter[State]] = {}
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state not in reached:
            reached[state] = close(state, 1)
            waiting += [below for part in reached[state] for below in (*part.below, *part.named.values())]
    return reached


def _descend(start: State, closures: dict[State, Counter[State]], charge: dict[State, int]) -> list[int]:
    levels = [charge[start]]
    while len(levels) < MAX_JSON_DEPTH and levels[-1] <= BUDGET:
        above, charge = charge, {state: _dearest(parts, charge) for state, parts in closures.items()}
        levels.append(charge[start])
        # Every level further down is the same.
        if charge == above:
            break
    return levels


def _dearest(parts: Counter[State], charge: dict[State, int]) -> int:
    """The charge for the dearest child: what applies to every child, and what applies to one by its name."""
    shared = 0
    named: defaultdict[str | int, int] = defaultdict(int)
    for part, times in parts.items():
        shared += times * sum(charge[below] for below in part.below)
        for name, below in part.named.items():
            named[name] += times * charge[below]
    return shared + max(named.values(), default=0)
