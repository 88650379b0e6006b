"""Following a remote server's changes: one long request, made again whenever it ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from gateway.contract import Json, ListChange
from gateway.errors import Fault, ForeignError
from gateway.upstream.talk import Nobody, change_of

log = logging.getLogger("gatehouse.upstream")

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


def _no_matter() -> None:
    """Nobody waits for it."""


class Hearing(Nobody):
    """Turns what the server notifies into changes."""

    def __init__(self, changed: Callable[[ListChange], None], ready: Callable[[], None] = _no_matter) -> None:
        self._changed = changed
        self.ready = ready
        """To be called once the server listens to what it was asked."""

    async def notified(self, method: str, params: Json) -> None:
        if (change := change_of(method, params)) is not None:
            self._changed(change)
        elif method == "notifications/subscriptions/acknowledged":
            self.ready()


class Follower:
    """Keeps `listen` running; between two attempts it waits longer and longer."""

    def __init__(self, name: str, listen: Callable[[], Awaitable[Any]]) -> None:
        self._name = name
        self._listen = listen
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"follow:{self._name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def restart(self) -> None:
        await self.stop()
        self.start()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._listen()
            except ForeignError as exc:
                log.info("%s does not tell of its changes: %s", self._name, exc.message)
                return
            except Fault as fault:
                log.debug("%s cannot be followed: %s", self._name, fault.message)
            except Exception:  # whatever it was, what changes later is to be heard
                log.exception("%s cannot be followed", self._name)
            lasted = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lasted > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)
