"""A session that another worker holds, used from here: its Studio reached this worker, or a call did.

Both halves: what this worker asks of others, and what others ask of it. Who asks for a Studio has been verified by the
worker it reached; over the bus goes whose session it is, and never a token.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.contract import Bus, Json
from gateway.errors import Fault, Kind
from gateway.upstream.bridge_session import Who
from gateway.upstream.local_bridge_sessions import LocalBridgeSessions, unavailable, unknown

_READ: Final = "bridge.read"
_LEFT: Final = "bridge.left"
_BACK: Final = "bridge.back"
_WRITE: Final = "bridge.write"
_CLOSE: Final = "bridge.close"
_REQUEST: Final = "bridge.request"
_DROP: Final = "bridge.drop"
_LOOK: Final = "bridge.look"
_SLICE: Final = 1.0
"""How long one question for the next line waits: so late at most is it noticed that its worker died."""
_ALIVE_EVERY: Final = 2.0
_PATIENCE: Final = 1.5

log = logging.getLogger("gatehouse.bridge")

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class PeerSessionGone(Exception):
    """The worker is not there, and nothing of what was asked has begun."""


class PeerBridgeSessions:
    def __init__(self, bus: Bus, own: LocalBridgeSessions, spawn: Spawn) -> None:
        self._bus = bus
        self._own = own
        self._spawn = spawn
        self._polls: dict[str, asyncio.Task[Any]] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        handlers = (
            (_READ, self._read),
            (_LEFT, self._left),
            (_BACK, self._back),
            (_WRITE, self._write),
            (_CLOSE, self._close),
            (_REQUEST, self._request),
            (_DROP, self._drop),
            (_LOOK, self._look),
        )
        for topic, handler in handlers:
            bus.respond(topic, _telling(handler))

    # ---- for a Studio that reached this worker ----

    async def read(self, worker: str, who: Who, session_id: str, timeout: float) -> Json | None:
        """The next message. Raises `Fault(NOT_FOUND)`, also when the worker is gone: the Studio opens anew."""
        until = asyncio.get_running_loop().time() + timeout
        while True:
            left = until - asyncio.get_running_loop().time()
            wait = min(max(left, 0.0), _SLICE)
            message = await self._poll(worker, {"session": session_id, "who": who, "wait": wait})
            if message is not None or left <= _SLICE:
                return message

    async def _poll(self, worker: str, about: Json) -> Json | None:
        poll = secrets.token_hex(8)
        asking = asyncio.ensure_future(self._ask(worker, _READ, {**about, "poll": poll}, about["wait"] + _PATIENCE))
        try:
            said = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The Studio hung up: what was on its way to it goes back.
            asking.add_done_callback(lambda done: self._return(worker, done))
            self._spawn(self._tell(worker, _LEFT, {"poll": poll, "session": about["session"]}))
            raise
        except PeerSessionGone as exc:
            raise unknown() from exc
        return said["message"]

    def _return(self, worker: str, done: "asyncio.Future[Json]") -> None:
        if done.cancelled() or done.exception() is not None:
            return
        if (message := done.result()["message"]) is not None:
            self._spawn(self._tell(worker, _BACK, {"message": message}))

    async def write(self, worker: str, who: Who, session_id: str, line: str) -> None:
        await self._of_session(worker, _WRITE, {"session": session_id, "who": who, "line": line})

    async def close(self, worker: str, who: Who, session_id: str) -> None:
        await self._of_session(worker, _CLOSE, {"session": session_id, "who": who})

    async def _of_session(self, worker: str, topic: str, about: Json) -> None:
        try:
            await self._ask(worker, topic, about, 5.0)
        except PeerSessionGone as exc:
            raise unknown() from exc

    # ---- for a call that reached this worker ----

    async def request(self, worker: str, tenant: str, session_id: str, payload: Json, timeout: float) -> Json:
        """The Studio's answer. Raises `Gone` when nothing has begun, `Fault` otherwise."""
        id = secrets.token_hex(8)
        about: Json = {"id": id, "tenant": tenant, "session": session_id, "payload": payload, "wait": timeout}
        # A plugin that must be greeted anew takes its time twice.
        asking = asyncio.ensure_future(self._ask(worker, _REQUEST, about, 2 * timeout + _PATIENCE))
        try:
            while True:
                await asyncio.wait({asking}, timeout=_ALIVE_EVERY)
                if asking.done():
                    return asking.result()["answer"]
                await self._still_there(worker, id, asking)
        finally:
            if not asking.done():
                asking.cancel()
                self._spawn(self._tell(worker, _DROP, {"id": id}))

    async def _still_there(self, worker: str, id: str, asking: "asyncio.Future[Json]") -> None:
        try:
            there = (await self._bus.request(worker, _LOOK, {"id": id}))["running"]
        except Fault:
            there = False
        if not there and not asking.done():
            raise unavailable("The worker that the Studio is connected to is gone.")

    async def _ask(self, worker: str, topic: str, about: Json, timeout: float) -> Json:
        try:
            said = await self._bus.request(worker, topic, about, timeout)
        except Fault as fault:
            if fault.kind is Kind.UNAVAILABLE:
                raise PeerSessionGone from fault
            # It took the question and says nothing: whatever it held is as good as lost.
            raise unavailable("The worker that the Studio is connected to does not answer.") from fault
        if (fault := said.get("fault")) is not None:
            kind = Kind(fault["kind"])
            raise Fault(kind, fault["message"], retryable=fault["retryable"], category=fault["category"])
        return said

    async def _tell(self, worker: str, topic: str, about: Json) -> None:
        with suppress(Fault):  # it is gone, and with it what it should have let go
            await self._bus.request(worker, topic, about)

    # ---- what others ask of this worker ----

    async def _read(self, about: Json) -> Json:
        task = asyncio.current_task()
        assert task is not None
        self._polls[about["poll"]] = task
        try:
            return {"message": await self._own.read(tuple(about["who"]), about["session"], about["wait"])}
        finally:
            del self._polls[about["poll"]]

    async def _left(self, about: Json) -> Json:
        if (task := self._polls.get(about["poll"])) is not None:
            task.cancel()
        self._own.cut(about["session"])
        return {}

    async def _back(self, about: Json) -> Json:
        await self._own.give_back(about["message"])
        return {}

    async def _write(self, about: Json) -> Json:
        await self._own.write(tuple(about["who"]), about["session"], about["line"])
        return {}

    async def _close(self, about: Json) -> Json:
        await self._own.end([self._own.get(tuple(about["who"]), about["session"])], "The Studio left.")
        return {}

    async def _request(self, about: Json) -> Json:
        session = next((each for each in self._own if each.id == about["session"]), None)
        if session is None or session.caller.tenant != about["tenant"]:
            raise unavailable("No Studio is connected.")
        task = asyncio.current_task()
        assert task is not None
        self._running[about["id"]] = task
        try:
            return {"answer": await self._own.request(session, about["payload"], about["wait"])}
        finally:
            del self._running[about["id"]]

    async def _drop(self, about: Json) -> Json:
        if (task := self._running.get(about["id"])) is not None:
            task.cancel()
        return {}

    async def _look(self, about: Json) -> Json:
        return {"running": about["id"] in self._running}


def _telling(handler: Callable[[Json], Awaitable[Json]]) -> Callable[[Json], Awaitable[Json]]:
    """Its faults as part of the answer: what the bus itself raises means that the worker is not there."""

    async def told(about: Json) -> Json:
        try:
            return await handler(about)
        except Fault as fault:
            said = {"kind": fault.kind, "message": fault.message, "retryable": fault.retryable}
            return {"fault": {**said, "category": fault.category}}

    return told
