"""Composition of the stages into one pipeline."""

import pytest

from gateway.contract import Call, Handler, Result
from gateway.errors import Fault, Kind
from gateway.stages.pipeline import compose
from tests.gateway.fakes import a_call


async def end(call: Call) -> Result:
    return {"seen": list(call.record.stages[: len(call.record.entered_at)])}


async def pass_on(call: Call, call_next: Handler) -> Result:
    return await call_next(call)


async def reject(call: Call, call_next: Handler) -> Result:
    raise Fault(Kind.DENIED, "No.")


async def test_stages_run_in_order_and_are_recorded() -> None:
    pipeline = compose((("one", pass_on), ("two", pass_on)), end, "last")
    assert await pipeline(a_call()) == {"seen": ["one", "two", "last"]}


async def test_rejected_call_stops_at_its_stage() -> None:
    call = a_call()
    with pytest.raises(Fault):
        await compose((("one", pass_on), ("two", reject), ("three", pass_on)), end)(call)
    assert call.record.stage == "two"


async def test_recorded_times_are_monotonic() -> None:
    call = a_call()
    assert call.record.stage == "edge"
    await compose((("one", pass_on), ("two", pass_on)), end)(call)
    times = [call.record.started, *call.record.entered_at]
    assert times == sorted(times)


async def test_pipeline_serves_several_calls() -> None:
    pipeline = compose((("one", pass_on),), end, "last")
    for _ in range(3):
        assert await pipeline(a_call()) == {"seen": ["one", "last"]}


async def test_pipeline_without_stages_calls_the_end() -> None:
    assert await compose((), end, "last")(a_call()) == {"seen": ["last"]}
