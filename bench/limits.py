"""What a limit in memory costs a call, alone: `python -m bench.limits`."""

from collections.abc import Awaitable
from typing import Any, Final, cast

from rich.console import Console

from bench.policy import best
from gateway.contract import MODERN, Call, Caller, ClientProfile, NullWire, Record, Result, Route
from gateway.stages.limit import Costs, Limit, Rule

MOST: Final = 10.0
"""Microseconds of CPU that one limit may take."""
_MANY: Final = 1e9
_RULES: Final = (
    Rule("calls", _MANY, 60),
    Rule("tenant", _MANY, 60, per=("tenant",)),
    Rule("tool", _MANY, 3600, per=("tenant",), tool="lab.*"),
    Rule("writes", _MANY, 60, effects=frozenset({2, 3})),
)


def main() -> int:
    """Prints the table; 1 when a limit takes more than it may."""
    console, call, costly = Console(), _call(), 0.0
    nothing = best(lambda: _end(call), 20_000)
    for count in (1, len(_RULES)):
        limit = Limit(_RULES[:count], Costs())
        took = best(lambda limit=limit: limit(call, _end), 20_000) - nothing
        costly = max(costly, took / count)
        console.print(f"limits in memory, {count} of them  {took:8.2f} µs of CPU (at most {MOST:g} each)")
    return 0 if costly <= MOST else 1


def _call() -> Call:
    caller = Caller("default", "alice", credential="key")
    backend: Any = None
    definition: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}
    route = Route("lab", "echo", "lab.echo", "lab_echo", backend, definition, effect=2)
    params = {"name": "lab_echo", "arguments": {"text": "hello"}}
    return Call("id", caller, "tools/call", params, ClientProfile(MODERN, {}), NullWire(), Record(), route)


def _end(call: Call) -> Awaitable[Result]:
    return _ANSWER


_ANSWER: Final = cast("Awaitable[Result]", object())


if __name__ == "__main__":
    raise SystemExit(main())
