"""Watching a server for list changes."""

import asyncio

import pytest

from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.lists import MAX_BACKOFF_SECONDS, ListWatcher
from tests.gateway.fakes import Clock, until


class FakeListen:
    def __init__(self, *outcomes: BaseException | None) -> None:
        self._outcomes = list(outcomes)
        self.starts = 0

    async def __call__(self) -> None:
        self.starts += 1
        if not self._outcomes:
            await asyncio.Event().wait()
        if (outcome := self._outcomes.pop(0)) is not None:
            raise outcome


@pytest.mark.parametrize("outcome", [None, Fault(Kind.UNAVAILABLE, "gone"), ValueError("odd"), KeyError("x")])
async def test_listening_restarts_after_any_failure(outcome: BaseException | None) -> None:
    clock, listen = Clock(), FakeListen(outcome, outcome)
    watcher = ListWatcher("far", listen)
    watcher.start()
    for count in (1, 2, 3):
        await until(lambda count=count: listen.starts == count)
        await clock.forward(MAX_BACKOFF_SECONDS)
    await watcher.stop()
    assert listen.starts == 3


async def test_server_without_change_notifications_is_not_asked_again() -> None:
    clock, listen = Clock(), FakeListen(ForeignError(-32601, "no"))
    watcher = ListWatcher("far", listen)
    watcher.start()
    await until(lambda: listen.starts == 1)
    await clock.forward(MAX_BACKOFF_SECONDS)
    await watcher.stop()
    assert listen.starts == 1
