"""Background tasks: cancellation and logging of failures."""

import asyncio
import gc
import logging
import warnings

import pytest

from gateway.wiring.host_services import BackgroundTasks


async def forever() -> None:
    await asyncio.Event().wait()


async def test_task_cancelled_before_it_started_causes_no_warning() -> None:
    tasks = BackgroundTasks()
    gc.collect()  # what other tests left behind would warn below
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tasks.spawn(forever())
        await tasks.cancel_all()
        gc.collect()
    assert [str(each.message) for each in caught] == []


async def test_failed_task_is_logged_with_its_exception(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("why")

    tasks = BackgroundTasks()
    with caplog.at_level(logging.ERROR, "gatehouse"):
        tasks.spawn(fail())
        while not caplog.records:
            await asyncio.sleep(0)
    assert caplog.records[0].exc_info is not None
    assert "why" in str(caplog.records[0].exc_info[1])
