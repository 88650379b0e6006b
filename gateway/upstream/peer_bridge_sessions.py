"""Access to bridge sessions of other workers over the bus, for requests of their Studios and for calls.

Contains both sides: the requests to other workers and their handlers. The worker that received the request has
authenticated the caller; the bus messages contain the session's owner, never a token.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from gateway.contract import Bus, Json
from gateway.errors import Fault, Kind
from gateway.upstream.bridge_session import SessionOwner
from gateway.upstream.local_bridge_sessions import LocalBridgeSessions, session_not_found, studio_unavailable

_READ: Final = "bridge.read"
_DISCONNECT: Final = "bridge.left"
_REQUEUE: Final = "bridge.back"
_WRITE: Final = "bridge.write"
_CLOSE: Final = "bridge.close"
_REQUEST: Final = "bridge.request"
_CANCEL: Final = "bridge.drop"
_STATUS: Final = "bridge.look"
_POLL_SLICE: Final = 1.0
"""Maximum duration of one poll over the bus: a dead worker is noticed within this time."""
_LIVENESS_INTERVAL: Final = 2.0
_REPLY_MARGIN: Final = 1.5

log = logging.getLogger("gatehouse.bridge")

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class PeerUnreachable(Exception):
    """The worker cannot be reached; the request has not been started."""


class PeerBridgeSessions:
    """Client and server side of the bridge messages between workers."""

    def __init__(self, bus: Bus, local_sessions: LocalBridgeSessions, spawn: Spawn) -> None:
        self._bus = bus
        self._local_sessions = local_sessions
        self._spawn = spawn
        self._polls: dict[str, asyncio.Task[Any]] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        handlers = (
            (_READ, self._read),
            (_DISCONNECT, self._disconnect),
            (_REQUEUE, self._requeue),
            (_WRITE, self._write),
            (_CLOSE, self._close),
            (_REQUEST, self._request),
            (_CANCEL, self._cancel),
            (_STATUS, self._status),
        )
        for topic, handler in handlers:
            bus.respond(topic, _with_faults(handler))

    # ---- requests of Studios that reached this worker ----

    async def read(self, worker: str, owner: SessionOwner, session_id: str, timeout: float) -> Json | None:
        """Return the next message. Raises `Fault(NOT_FOUND)`, also for a dead worker: the Studio reconnects."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            remaining = deadline - asyncio.get_running_loop().time()
            wait = min(max(remaining, 0.0), _POLL_SLICE)
            message = await self._poll(worker, {"session": session_id, "who": owner, "wait": wait})
            if message is not None or remaining <= _POLL_SLICE:
                return message

    async def _poll(self, worker: str, params: Json) -> Json | None:
        poll = secrets.token_hex(8)
        request_task = asyncio.ensure_future(
            self._request_worker(worker, _READ, {**params, "poll": poll}, params["wait"] + _REPLY_MARGIN)
        )
        try:
            reply = await asyncio.shield(request_task)
        except asyncio.CancelledError:
            # The Studio disconnected: requeue the message that was on its way.
            request_task.add_done_callback(lambda task: self._requeue_result(worker, task))
            self._spawn(self._notify_worker(worker, _DISCONNECT, {"poll": poll, "session": params["session"]}))
            raise
        except PeerUnreachable as exc:
            raise session_not_found() from exc
        return reply["message"]

    def _requeue_result(self, worker: str, task: "asyncio.Future[Json]") -> None:
        if task.cancelled() or task.exception() is not None:
            return
        if (message := task.result()["message"]) is not None:
            self._spawn(self._notify_worker(worker, _REQUEUE, {"message": message}))

    async def write(self, worker: str, owner: SessionOwner, session_id: str, line: str) -> None:
        await self._session_request(worker, _WRITE, {"session": session_id, "who": owner, "line": line})

    async def close(self, worker: str, owner: SessionOwner, session_id: str) -> None:
        await self._session_request(worker, _CLOSE, {"session": session_id, "who": owner})

    async def _session_request(self, worker: str, topic: str, params: Json) -> None:
        try:
            await self._request_worker(worker, topic, params, 5.0)
        except PeerUnreachable as exc:
            raise session_not_found() from exc

    # ---- calls that reached this worker ----

    async def request(self, worker: str, tenant: str, session_id: str, payload: Json, timeout: float) -> Json:
        """Return the Studio's response. Raises `PeerUnreachable` if the request was not started, else `Fault`."""
        id = secrets.token_hex(8)
        params: Json = {"id": id, "tenant": tenant, "session": session_id, "payload": payload, "wait": timeout}
        # A reloaded plugin needs a second handshake, so the request may take twice the timeout.
        request_task = asyncio.ensure_future(
            self._request_worker(worker, _REQUEST, params, 2 * timeout + _REPLY_MARGIN)
        )
        try:
            while True:
                await asyncio.wait({request_task}, timeout=_LIVENESS_INTERVAL)
                if request_task.done():
                    return request_task.result()["answer"]
                await self._check_alive(worker, id, request_task)
        finally:
            if not request_task.done():
                request_task.cancel()
                self._spawn(self._notify_worker(worker, _CANCEL, {"id": id}))

    async def _check_alive(self, worker: str, id: str, request_task: "asyncio.Future[Json]") -> None:
        try:
            is_running = (await self._bus.request(worker, _STATUS, {"id": id}))["running"]
        except Fault:
            is_running = False
        if not is_running and not request_task.done():
            raise studio_unavailable("The worker that the Studio is connected to has stopped.")

    async def _request_worker(self, worker: str, topic: str, params: Json, timeout: float) -> Json:
        try:
            reply = await self._bus.request(worker, topic, params, timeout)
        except Fault as fault:
            if fault.kind is Kind.UNAVAILABLE:
                raise PeerUnreachable from fault
            # The worker accepted the request and does not reply: treat its sessions as lost.
            raise studio_unavailable("The worker that the Studio is connected to does not answer.") from fault
        if (fault := reply.get("fault")) is not None:
            kind = Kind(fault["kind"])
            raise Fault(kind, fault["message"], retryable=fault["retryable"], category=fault["category"])
        return reply

    async def _notify_worker(self, worker: str, topic: str, params: Json) -> None:
        with suppress(Fault):  # a dead worker holds nothing to release
            await self._bus.request(worker, topic, params)

    # ---- handlers of requests from other workers ----

    async def _read(self, params: Json) -> Json:
        task = asyncio.current_task()
        assert task is not None
        self._polls[params["poll"]] = task
        try:
            return {"message": await self._local_sessions.read(tuple(params["who"]), params["session"], params["wait"])}
        finally:
            del self._polls[params["poll"]]

    async def _disconnect(self, params: Json) -> Json:
        if (task := self._polls.get(params["poll"])) is not None:
            task.cancel()
        self._local_sessions.connection_lost(params["session"])
        return {}

    async def _requeue(self, params: Json) -> Json:
        await self._local_sessions.requeue(params["message"])
        return {}

    async def _write(self, params: Json) -> Json:
        await self._local_sessions.write(tuple(params["who"]), params["session"], params["line"])
        return {}

    async def _close(self, params: Json) -> Json:
        await self._local_sessions.end(
            [self._local_sessions.get(tuple(params["who"]), params["session"])], "The Studio closed its session."
        )
        return {}

    async def _request(self, params: Json) -> Json:
        session = next((each for each in self._local_sessions if each.id == params["session"]), None)
        if session is None or session.caller.tenant != params["tenant"]:
            raise studio_unavailable("No Studio is connected.")
        task = asyncio.current_task()
        assert task is not None
        self._running[params["id"]] = task
        try:
            return {"answer": await self._local_sessions.request(session, params["payload"], params["wait"])}
        finally:
            del self._running[params["id"]]

    async def _cancel(self, params: Json) -> Json:
        if (task := self._running.get(params["id"])) is not None:
            task.cancel()
        return {}

    async def _status(self, params: Json) -> Json:
        return {"running": params["id"] in self._running}


def _with_faults(handler: Callable[[Json], Awaitable[Json]]) -> Callable[[Json], Awaitable[Json]]:
    """Return faults in the reply: a fault that the bus itself raises means that the worker cannot be reached."""

    async def respond(params: Json) -> Json:
        try:
            return await handler(params)
        except Fault as fault:
            reply = {"kind": fault.kind, "message": fault.message, "retryable": fault.retryable}
            return {"fault": {**reply, "category": fault.category}}

    return respond
