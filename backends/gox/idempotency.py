"""A write with an idempotency key is carried out once: a repetition gets the first one's answer.

The key belongs to one principal and one tool. With other arguments it is refused; a repetition while the first still
runs waits for it. A failure is not kept, so it may be tried again under the same key.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, text

from backends.gox.registry import alive
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

KEPT: Final = 24 * 3600.0
MAX_KEY: Final = 255

_FIND: Final = text(
    "SELECT digest, worker, answer FROM idempotency WHERE principal = :principal AND tool = :tool AND word = :word"
)
_EXPIRE: Final = text("DELETE FROM idempotency WHERE made_at < :before")
_CLAIM: Final = text(
    "INSERT INTO idempotency (principal, tool, word, digest, worker, made_at)"
    " VALUES (:principal, :tool, :word, :digest, :worker, :at)"
)
_TAKE_OVER: Final = text(
    "UPDATE idempotency SET worker = :worker WHERE principal = :principal AND tool = :tool AND word = :word"
)
_KEEP: Final = text(
    "UPDATE idempotency SET answer = :answer WHERE principal = :principal AND tool = :tool AND word = :word"
)
_FORGET: Final = text("DELETE FROM idempotency WHERE principal = :principal AND tool = :tool AND word = :word")

_Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Once:
    """Give one to a backend; it holds what runs on this worker."""

    home: Host
    _running: "dict[_Place, tuple[str, asyncio.Task[Json]]]"

    @classmethod
    def of(cls, home: Host) -> "Once":
        return cls(home, {})

    async def __call__(self, tool: str, key: object, arguments: Json, work: Callable[[], Awaitable[Json]]) -> Json:
        """What `work` answers, now or earlier. Without a key it simply runs."""
        if key is None:
            return await work()
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
            raise Fault(Kind.INVALID_INPUT, f"idempotencyKey must be a string of 1 to {MAX_KEY} characters")
        caller = self.home.current_call().caller
        place, digest = (caller.principal, tool, key), _digest(arguments)
        running = self._running.get(place)
        if running is None:
            # In a task of its own: whoever asked first may leave while others still wait for the answer.
            task = asyncio.create_task(self._first(caller, place, digest, work))
            running = self._running[place] = (digest, task)
            task.add_done_callback(lambda done: self._done(place, done))
        if running[0] != digest:
            raise _other_arguments()
        return await asyncio.shield(running[1])

    def _done(self, place: _Place, task: "asyncio.Task[Json]") -> None:
        self._running.pop(place, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have left

    async def _first(self, caller: Caller, place: _Place, digest: str, work: Callable[[], Awaitable[Json]]) -> Json:
        known = await self._claim(caller, place, digest)
        if known is not None:
            return known
        try:
            answer = await work()
        except Fault:
            await self._write(caller, _FORGET, place)
            raise
        await self._write(caller, _KEEP, place, answer=json.dumps(answer))
        return answer

    async def _claim(self, caller: Caller, place: _Place, digest: str) -> Json | None:
        """The answer that is known already, or the right to find it."""
        row = _row(place)
        async with self.home.store(caller).transaction() as connection:
            await connection.execute(_EXPIRE, {"before": time.time() - KEPT})
            found = (await connection.execute(_FIND, row)).one_or_none()
            if found is None:
                claim = {**row, "digest": digest, "worker": self.home.bus.worker, "at": time.time()}
                await connection.execute(_CLAIM, claim)
                return None
        return await self._recall(caller, place, digest, found)

    async def _recall(self, caller: Caller, place: _Place, digest: str, found: Row[Any]) -> Json | None:
        if found.digest != digest:
            raise _other_arguments()
        if found.answer is not None:
            return json.loads(found.answer)
        if found.worker != self.home.bus.worker and await alive(self.home, found.worker):
            raise Fault(Kind.UNAVAILABLE, "The first call with this idempotencyKey still runs.", retry_after=1.0)
        # Whoever ran it died before it knew the answer. It is asked again under the same key.
        await self._write(caller, _TAKE_OVER, place, worker=self.home.bus.worker)
        return None

    async def _write(self, caller: Caller, statement: Any, place: _Place, **more: Any) -> None:
        async with self.home.store(caller).transaction() as connection:
            await connection.execute(statement, {**_row(place), **more})


def bridge_key(caller: Caller, tool: str, key: str) -> str:
    """The key under which a Studio remembers what it did: the same for the same repetition, and nobody else's."""
    return hashlib.sha256("\0".join((caller.principal, tool, key)).encode()).hexdigest()[:40]


def _row(place: _Place) -> Json:
    return dict(zip(("principal", "tool", "word"), place, strict=True))


def _digest(arguments: Json) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


def _other_arguments() -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        "this idempotencyKey was used with other arguments",
        details={"validation_path": "_meta.idempotencyKey", "validation_rule": "idempotencyKey"},
    )
