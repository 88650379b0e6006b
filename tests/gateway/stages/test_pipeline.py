"""The path, folded once."""

import pytest

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind
from gateway.pipeline import compose
from tests.gateway.fakes import a_call


async def end(call: Call) -> Result:
    return {"seen": list(call.record.stages[: len(call.record.marks)])}


async def through(call: Call, call_next: Handler) -> Result:
    return await call_next(call)


async def refuses(call: Call, call_next: Handler) -> Result:
    raise Fault(Kind.DENIED, "No.")


async def test_stages_run_in_the_order_they_are_written_and_note_themselves() -> None:
    path = compose((("one", through), ("two", through)), end, "last")
    assert await path(a_call()) == {"seen": ["one", "two", "last"]}


async def test_what_is_refused_goes_no_further_and_says_where() -> None:
    call = a_call()
    with pytest.raises(Fault):
        await compose((("one", through), ("two", refuses), ("three", through)), end)(call)
    assert call.record.stage == "two"


async def test_times_never_run_backwards() -> None:
    call = a_call()
    assert call.record.stage == "edge"
    await compose((("one", through), ("two", through)), end)(call)
    times = [call.record.started, *call.record.marks]
    assert times == sorted(times)


async def test_one_path_serves_any_number_of_calls() -> None:
    path = compose((("one", through),), end, "last")
    for _ in range(3):
        assert await path(a_call()) == {"seen": ["one", "last"]}


async def test_no_stages_are_a_path_too() -> None:
    assert await compose((), end, "last")(a_call()) == {"seen": ["last"]}
