"""Idempotency keys: a write with a key runs once, and repetitions return the stored answer.

A key is scoped to one principal and one tool. A repetition with different arguments is rejected. A repetition while
the first call still runs waits for its result. Failures are not stored, so the same key can be retried.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, text

from backends.gox.registry import is_worker_alive
from gateway.contract import Caller, Host, Json
from gateway.errors import Fault, Kind

RETENTION_SECONDS: Final = 24 * 3600.0
MAX_KEY_LENGTH: Final = 255

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
_SAVE_ANSWER: Final = text(
    "UPDATE idempotency SET answer = :answer WHERE principal = :principal AND tool = :tool AND word = :word"
)
_DELETE: Final = text("DELETE FROM idempotency WHERE principal = :principal AND tool = :tool AND word = :word")

_KeyId = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class IdempotentCalls:
    """Deduplicates calls by idempotency key. Create one per backend; it tracks the calls that run on this worker."""

    host: Host
    _running: "dict[_KeyId, tuple[str, asyncio.Task[Json]]]"

    @classmethod
    def create(cls, host: Host) -> "IdempotentCalls":
        return cls(host, {})

    async def __call__(self, tool: str, key: object, arguments: Json, operation: Callable[[], Awaitable[Json]]) -> Json:
        """Run `operation`, or return its stored answer if the key was used before. Without a key, always run it."""
        if key is None:
            return await operation()
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
            raise Fault(Kind.INVALID_INPUT, f"idempotencyKey must be a string of 1 to {MAX_KEY_LENGTH} characters")
        caller = self.host.current_call().caller
        key_id, digest = (caller.principal, tool, key), _digest(arguments)
        running = self._running.get(key_id)
        if running is None:
            # A separate task: the first caller may disconnect while other callers wait for the answer.
            task = asyncio.create_task(self._run_first(caller, key_id, digest, operation))
            running = self._running[key_id] = (digest, task)
            task.add_done_callback(lambda done: self._remove(key_id, done))
        if running[0] != digest:
            raise _argument_conflict()
        return await asyncio.shield(running[1])

    def _remove(self, key_id: _KeyId, task: "asyncio.Task[Json]") -> None:
        self._running.pop(key_id, None)
        if not task.cancelled():
            task.exception()  # mark as retrieved: all waiting callers may have disconnected

    async def _run_first(
        self, caller: Caller, key_id: _KeyId, digest: str, operation: Callable[[], Awaitable[Json]]
    ) -> Json:
        known = await self._claim(caller, key_id, digest)
        if known is not None:
            return known
        try:
            answer = await operation()
        except Fault:
            await self._write(caller, _DELETE, key_id)
            raise
        await self._write(caller, _SAVE_ANSWER, key_id, answer=json.dumps(answer))
        return answer

    async def _claim(self, caller: Caller, key_id: _KeyId, digest: str) -> Json | None:
        """Return the stored answer, or claim the key for this worker and return None."""
        row = _row(key_id)
        async with self.host.store(caller).transaction() as connection:
            await connection.execute(_EXPIRE, {"before": time.time() - RETENTION_SECONDS})
            found = (await connection.execute(_FIND, row)).one_or_none()
            if found is None:
                claim = {**row, "digest": digest, "worker": self.host.bus.worker, "at": time.time()}
                await connection.execute(_CLAIM, claim)
                return None
        return await self._resolve_claimed(caller, key_id, digest, found)

    async def _resolve_claimed(self, caller: Caller, key_id: _KeyId, digest: str, found: Row[Any]) -> Json | None:
        if found.digest != digest:
            raise _argument_conflict()
        if found.answer is not None:
            return json.loads(found.answer)
        if found.worker != self.host.bus.worker and await is_worker_alive(self.host, found.worker):
            raise Fault(Kind.UNAVAILABLE, "The first call with this idempotencyKey still runs.", retry_after=1.0)
        # The worker that claimed the key died before it stored an answer: run the call again under the same key.
        await self._write(caller, _TAKE_OVER, key_id, worker=self.host.bus.worker)
        return None

    async def _write(self, caller: Caller, statement: Any, key_id: _KeyId, **more: Any) -> None:
        async with self.host.store(caller).transaction() as connection:
            await connection.execute(statement, {**_row(key_id), **more})


def bridge_key(caller: Caller, tool: str, key: str) -> str:
    """Derive the key that is sent to a Studio: stable across repetitions, unique per principal and tool."""
    return hashlib.sha256("\0".join((caller.principal, tool, key)).encode()).hexdigest()[:40]


def _row(key_id: _KeyId) -> Json:
    return dict(zip(("principal", "tool", "word"), key_id, strict=True))


def _digest(arguments: Json) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


def _argument_conflict() -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        "this idempotencyKey was used with other arguments",
        details={"validation_path": "_meta.idempotencyKey", "validation_rule": "idempotencyKey"},
    )
