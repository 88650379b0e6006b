"""Following a server's changes."""

import asyncio

import pytest

from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.lists import LONGEST_PAUSE, ListWatcher
from tests.gateway.fakes import Clock, until


class Listening:
    def __init__(self, *ends: BaseException | None) -> None:
        self._ends = list(ends)
        self.begun = 0

    async def __call__(self) -> None:
        self.begun += 1
        if not self._ends:
            await asyncio.Event().wait()
        if (end := self._ends.pop(0)) is not None:
            raise end


@pytest.mark.parametrize("end", [None, Fault(Kind.UNAVAILABLE, "gone"), ValueError("odd"), KeyError("x")])
async def test_whatever_ends_the_listening_it_begins_again(end: BaseException | None) -> None:
    clock, listening = Clock(), Listening(end, end)
    follower = ListWatcher("far", listening)
    follower.start()
    for times in (1, 2, 3):
        await until(lambda times=times: listening.begun == times)
        await clock.forward(LONGEST_PAUSE)
    await follower.stop()
    assert listening.begun == 3


async def test_a_server_that_does_not_tell_is_not_asked_again() -> None:
    clock, listening = Clock(), Listening(ForeignError(-32601, "no"))
    follower = ListWatcher("far", listening)
    follower.start()
    await until(lambda: listening.begun == 1)
    await clock.forward(LONGEST_PAUSE)
    await follower.stop()
    assert listening.begun == 1
