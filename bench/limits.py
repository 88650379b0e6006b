"""`python -m bench.limits`: measures the CPU cost of in-memory rate limits per call."""

from collections.abc import Awaitable
from typing import Any, Final, cast

from rich.console import Console

from bench.policy import measure_cpu
from gateway.contract import MODERN, Call, Caller, ClientProfile, NullWire, Record, Result, Route
from gateway.stages.limit import CallCosts, Limit, RateRule

MAX_US: Final = 10.0
"""Maximum CPU microseconds of one limit."""
_UNREACHED: Final = 1e9
_RULES: Final = (
    RateRule("calls", _UNREACHED, 60),
    RateRule("tenant", _UNREACHED, 60, per=("tenant",)),
    RateRule("tool", _UNREACHED, 3600, per=("tenant",), tool="lab.*"),
    RateRule("writes", _UNREACHED, 60, effects=frozenset({2, 3})),
)


def main() -> int:
    """Print the table. Returns 1 when a limit exceeds its maximum."""
    console, call, slowest = Console(), _call(), 0.0
    baseline = measure_cpu(lambda: _call_next(call), 20_000)
    for count in (1, len(_RULES)):
        limit = Limit(_RULES[:count], CallCosts())
        cost = measure_cpu(lambda limit=limit: limit(call, _call_next), 20_000) - baseline
        slowest = max(slowest, cost / count)
        console.print(f"in-memory limits: {count}    {cost:8.2f} µs of CPU (at most {MAX_US:g} each)")
    return 0 if slowest <= MAX_US else 1


def _call() -> Call:
    caller = Caller("default", "alice", credential="key")
    backend: Any = None
    definition: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}
    route = Route("lab", "echo", "lab.echo", "lab_echo", backend, definition, effect=2)
    params = {"name": "lab_echo", "arguments": {"text": "hello"}}
    return Call(
        id="id",
        caller=caller,
        method="tools/call",
        params=params,
        client=ClientProfile(MODERN, {}),
        wire=NullWire(),
        record=Record(),
        route=route,
    )


def _call_next(call: Call) -> Awaitable[Result]:
    return _RESULT


_RESULT: Final = cast("Awaitable[Result]", object())


if __name__ == "__main__":
    raise SystemExit(main())
