"""Access to peer sessions of other workers over the bus, for requests of their peers and for calls.

Contains both sides: the requests to other workers and their handlers. The worker that received the request has
authenticated the caller; the bus messages contain the session's owner, never a token.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from gateway.contract import Bus, Json
from gateway.errors import Fault, Kind
from gateway.upstream.peers.local_sessions import (
    LocalSessions,
    SessionOwner,
    Spawn,
    peer_unavailable,
    session_not_found,
)
from gateway.upstream.peers.roster import RemoteSession

_READ: Final = "peers.read"
_DISCONNECT: Final = "peers.left"
_REQUEUE: Final = "peers.back"
_WRITE: Final = "peers.write"
_CLOSE: Final = "peers.close"
_REQUEST: Final = "peers.request"
_CANCEL: Final = "peers.drop"
_STATUS: Final = "peers.look"
_POLL_SLICE: Final = 1.0
"""Maximum duration of one poll over the bus: a dead worker is noticed within this time."""
_LIVENESS_INTERVAL: Final = 2.0
_REPLY_MARGIN: Final = 1.5

log = logging.getLogger("gatehouse.peers")


class WorkerUnreachable(Exception):
    """The worker cannot be reached; the request has not been started."""


class WorkerRelay:
    """Client and server side of the messages about peer sessions between workers."""

    def __init__(self, bus: Bus, local_sessions: LocalSessions, spawn: Spawn) -> None:
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

    # ---- requests of peers that reached this worker ----

    async def read(self, worker: str, owner: SessionOwner, session_id: str, timeout: float) -> Json | None:
        """Return the next message. Raises `Fault(NOT_FOUND)`, also for a dead worker: the peer reconnects."""
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
            # The peer disconnected: requeue the message that was on its way.
            request_task.add_done_callback(lambda task: self._requeue_result(worker, task))
            self._spawn(self._notify_worker(worker, _DISCONNECT, {"poll": poll, "session": params["session"]}))
            raise
        except WorkerUnreachable as exc:
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
        except WorkerUnreachable as exc:
            raise session_not_found() from exc

    # ---- calls that reached this worker ----

    async def request(self, session: RemoteSession, noun: str, message: Json, timeout: float) -> Json:
        """Return the peer's response. Raises `WorkerUnreachable` if the request was not started, else `Fault`."""
        id = secrets.token_hex(8)
        tenant = session.peer_key[1]
        params: Json = {"id": id, "tenant": tenant, "session": session.id, "message": message, "wait": timeout}
        # A restarted peer needs a second handshake, so the request may take twice the timeout.
        request_task = asyncio.ensure_future(
            self._request_worker(session.worker, _REQUEST, params, 2 * timeout + _REPLY_MARGIN)
        )
        try:
            while True:
                await asyncio.wait({request_task}, timeout=_LIVENESS_INTERVAL)
                if request_task.done():
                    return request_task.result()["answer"]
                if not await self._is_running(session.worker, id) and not request_task.done():
                    raise peer_unavailable(f"The worker that the {noun} is connected to has stopped.")
        finally:
            if not request_task.done():
                request_task.cancel()
                self._spawn(self._notify_worker(session.worker, _CANCEL, {"id": id}))

    async def _is_running(self, worker: str, id: str) -> bool:
        try:
            return (await self._bus.request(worker, _STATUS, {"id": id}))["running"]
        except Fault:
            return False

    async def _request_worker(self, worker: str, topic: str, params: Json, timeout: float) -> Json:
        try:
            reply = await self._bus.request(worker, topic, params, timeout)
        except Fault as fault:
            if fault.kind is Kind.UNAVAILABLE:
                raise WorkerUnreachable from fault
            # The worker accepted the request and does not reply: treat its sessions as lost.
            raise peer_unavailable("The worker that holds the session does not answer.") from fault
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
        session = self._local_sessions.get(tuple(params["who"]), params["session"])
        await self._local_sessions.end([session], f"The {session.noun} closed its session.")
        return {}

    async def _request(self, params: Json) -> Json:
        session = next((each for each in self._local_sessions if each.id == params["session"]), None)
        if session is None or session.caller.tenant != params["tenant"]:
            raise peer_unavailable("The session has ended.")
        task = asyncio.current_task()
        assert task is not None
        self._running[params["id"]] = task
        try:
            return {"answer": await self._local_sessions.request(session, params["message"], params["wait"])}
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
