"""The stream beside the calls of one session: many servers ask and log there instead of on the call's own stream.

A session belongs to one principal, so whatever is said there while its calls run may be told to the newest of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from gateway.contract import Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.talk import Nobody, Talk

log = logging.getLogger("gatehouse.upstream")

LINGER_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 2.0
_NOBODY: Final = Nobody()

Hear = Callable[[Talk, asyncio.Event], Awaitable[None]]
"""Hears what the server says, until it ends the stream; sets the event as soon as the stream is open."""


class Beside:
    """Open while calls run or somebody hears, and for a while after; not opened again once the server refused it."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._talks: list[Talk] = []
        self._opened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._refused = False

    async def open(self) -> None:
        """Returns when the server may speak on it, or has shown that it does not."""
        if self._task is None and not self._refused:
            self._opened.clear()
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_SECONDS):
                await self._opened.wait()

    async def over(self) -> None:
        """Until the stream ends; without end if the server has none: what it has to tell comes with calls, or never."""
        if self._refused:
            await asyncio.Event().wait()
        if self._task is not None:
            await asyncio.wait({self._task})

    @property
    def has_ears(self) -> bool:
        """Whether anybody is there to be told."""
        return bool(self._talks)

    @contextmanager
    def told(self, talk: Talk) -> Generator[None]:
        """From now until the block ends, this call may be asked and told."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        self._talks.append(talk)
        try:
            yield
        finally:
            self._talks.remove(talk)
            if not self._talks and self._task is not None:
                self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.close)

    def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._hear(self, self._opened)
        except ForeignError:
            self._refused = True
        except Fault as fault:
            log.debug("the stream beside calls broke off: %s", fault.message)
        finally:
            self._task = None
            self._opened.set()

    # ---- gateway.upstream.talk.Talk, for whichever call is there ----

    token: int | None = None

    def sent(self, id: int, version: str, session: str | None) -> None:
        """It hears, and sends nothing."""

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            for talk in list(self._talks):
                await talk.notified(method, params)
        else:
            await self._newest.notified(method, params)

    async def asked(self, method: str, params: Json) -> Json:
        return await self._newest.asked(method, params)

    async def hung_up(self) -> None:
        """Nobody waits for this stream."""

    @property
    def _newest(self) -> Talk:
        """Of the calls; where there is none, of those who only hear."""
        calls = (talk for talk in reversed(self._talks) if not isinstance(talk, Nobody))
        return next(calls, self._talks[-1] if self._talks else _NOBODY)
