"""The handshake era at the north door (2024-11-05 to 2025-11-25): sessions that any replica can serve."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Final, cast

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from msgspec.structs import replace

from gateway.catalogue.view import View
from gateway.contract import Call, ClientProfile, Handler, Json, McpHttpRequest, ResponseWriter, Result
from gateway.error_rendering import number
from gateway.errors import Fault, ForeignError, Kind, UnknownName
from gateway.protocol.client_requests import ClientRequests, posted
from gateway.protocol.context import CARRIED, IS_LIST, LARGE, EndpointContext, Refusal, find, list_end, read_aside, seen
from gateway.protocol.downgrade import downgrade
from gateway.protocol.event_streams import EventStreams
from gateway.protocol.get_stream import GetStreams
from gateway.protocol.messages import Message, check, check_level, is_id, message
from gateway.protocol.request_handling import (
    OTHER,
    Correlation,
    InboundRequest,
    Prepared,
    RequestOutcome,
    RequestRefusals,
    handle_request,
)
from gateway.protocol.responses import Header, RpcError, error_bytes, headers, timing
from gateway.protocol.sealed_tokens import SESSION_SECONDS
from gateway.protocol.sessions import McpSession, McpSessions
from gateway.protocol.stream_limits import StreamLimits
from gateway.protocol.strict_json import InvalidJson, decode
from gateway.protocol.wire import KeepAlive, LegacyWire
from gateway.protocol.worker_events import WorkerEvents

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
SESSION_GONE: Final = -32001
_NO_ENDPOINT: Final = RpcError(METHOD_NOT_FOUND, "There is no such endpoint.")
_NO_SESSION: Final = RpcError(INVALID_REQUEST, "Missing Mcp-Session-Id header: begin with initialize.")
_GONE: Final = RpcError(SESSION_GONE, "Session not found: begin again with initialize.")


class LegacyEra:
    """Answers POST, GET and DELETE of the handshake era."""

    def __init__(
        self,
        floor: EndpointContext,
        sessions: McpSessions,
        streams: EventStreams,
        asking: ClientRequests,
        standing: GetStreams,
        pulse: KeepAlive,
        news: WorkerEvents,
        caps: StreamLimits,
        *,
        by_rows: bool = True,
    ) -> None:
        """`by_rows`: where there is no bus, another process that asked is told by a row of the database they share."""
        self._floor = floor
        self._by_rows = by_rows
        self.refusals = RequestRefusals(floor, LATEST_HANDSHAKE_VERSION)
        self._caps = caps
        self._news = news
        news.on("cancelled", self._cancelled_elsewhere)
        news.on("ended", lambda about: self._end_here(about["session"]))
        news.on("subscribed", lambda about: standing.subscribed(about["session"]))
        news.on("standing", lambda about: standing.end(about["session"]))
        self._sessions = sessions
        self._streams = streams
        self._asking = asking
        self._standing = standing
        sessions.rows.on_answer(asking.answered_elsewhere)
        self._pulse = pulse
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[tuple[str, str | int], asyncio.Task[Any]] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        """By task: two requests of a careless client may have one id."""
        self._ends: dict[str, Handler] = {
            **dict.fromkeys(CARRIED, floor.path),
            **dict.fromkeys(IS_LIST, floor.lists(list_end(floor.catalogue))),
            "initialize": floor.lists(self._initialize),
            "ping": floor.lists(_pong),
            "logging/setLevel": floor.lists(self._set_level),
            "resources/subscribe": floor.lists(self._subscribe),
            "resources/unsubscribe": floor.lists(self._unsubscribe),
        }

    # ---- the three verbs ----

    async def post(self, inbound: McpHttpRequest, outlet: ResponseWriter) -> None:
        try:
            raw = inbound.body
            asked = message(decode(raw) if len(raw) < LARGE else await read_aside(raw))
        except InvalidJson as exc:
            await self.refusals.tell(inbound, outlet, 400, RpcError(exc.code, exc.message), id=exc.id)
            return
        correlation_id, trace = correlation = self._floor.correlate(inbound.headers, asked.params.get("_meta"))
        view = self._floor.view(inbound)
        if view is None:
            about: Json = {"id": asked.id, "method": self._known(asked.method), "correlation": correlation}
            await self.refusals.tell(inbound, outlet, 404, _NO_ENDPOINT, **about)
            return
        if asked.method == "initialize" and asked.kind == "request":
            await self._open(inbound, outlet, view, asked, correlation_id, trace)
            return
        session = self._sessions.find(inbound.caller, inbound.headers.get("mcp-session-id", ""))
        if session is None:
            await self._no_session(inbound, outlet, correlation, asked.id, self._known(asked.method))
            return
        if asked.kind == "request":
            await self._serve(inbound, outlet, view, session, asked, correlation_id, trace)
            return
        spent = await self.refusals.charge(inbound, correlation)
        if not await self._took(session.digest, asked, alone=spent is not None) and spent is not None:
            await self.refusals.tell(inbound, outlet, 0, spent, correlation=correlation)
            return
        await outlet.answer(202, headers(correlation_id), b"")

    async def _took(self, digest: str, said: Message, *, alone: bool) -> bool:
        """Act on an answer or a notification; whether it meant anything here. If `alone`, no other worker is told."""
        if said.kind == "response":
            if self._asking.taken(digest, said):
                return True
            if not alone and self._asking.is_anothers(digest, said.id):
                passed_on = await self._asking.passed_on(digest, said)
                if not passed_on and self._by_rows:
                    await self._sessions.rows.answer(digest, str(said.id), posted(said))
        elif said.method == "notifications/cancelled" and is_id(id := said.params.get("requestId")):
            if self._cancel(digest, id):
                return True
            if not alone:
                await self._news.tell("cancelled", {"session": digest, "id": id})
        return False

    async def get(self, inbound: McpHttpRequest, outlet: ResponseWriter) -> None:
        correlation_id, _ = correlation = self._floor.correlate(inbound.headers, None)
        if self._floor.view(inbound) is None:
            await self.refusals.tell(inbound, outlet, 404, _NO_ENDPOINT, correlation=correlation)
            return
        session = self._sessions.find(inbound.caller, inbound.headers.get("mcp-session-id", ""))
        if session is None:
            await self._no_session(inbound, outlet, correlation)
        else:
            try:
                with self._caps.held(inbound.caller):
                    if "last-event-id" not in inbound.headers:
                        await self._end_standing(session.digest)
                    # Awaited here: what it waits in is held as long as the stream is open.
                    await self._standing.open(inbound, outlet, session, correlation_id)
            except Fault as fault:
                await self.refusals.tell(inbound, outlet, 0, fault, correlation=correlation)

    async def _end_standing(self, digest: str) -> None:
        """At most one standing stream a session, in whichever worker it is."""
        self._standing.end(digest)
        await self._news.tell("standing", {"session": digest})

    async def delete(self, inbound: McpHttpRequest, outlet: ResponseWriter) -> None:
        correlation_id, _ = correlation = self._floor.correlate(inbound.headers, None)
        session = self._sessions.find(inbound.caller, inbound.headers.get("mcp-session-id", ""))
        if session is None:
            await self._no_session(inbound, outlet, correlation)
        else:
            await self._sessions.end(session)
            self._cancel_all(session.digest)
            await self._standing.forget(session.digest)
            await self._news.tell("ended", {"session": session.digest})
            await outlet.answer(204, headers(correlation_id), b"")

    async def _no_session(
        self,
        inbound: McpHttpRequest,
        outlet: ResponseWriter,
        correlation: Correlation,
        id: str | int | None = None,
        method: str = OTHER,
    ) -> None:
        status, error = (404, _GONE) if "mcp-session-id" in inbound.headers else (400, _NO_SESSION)
        await self.refusals.tell(inbound, outlet, status, error, id=id, method=method, correlation=correlation)

    def _known(self, method: str) -> str:
        return method if method in self._ends else OTHER

    # ---- one request ----

    async def _open(
        self,
        inbound: McpHttpRequest,
        outlet: ResponseWriter,
        view: View,
        asked: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        params = asked.params
        version = _negotiated(params.get("protocolVersion"))
        capabilities: Any = params.get("capabilities")
        said: Any = params.get("clientInfo")
        info = cast("Json", said) if isinstance(said, dict) else None
        client = ClientProfile(version, cast("Json", capabilities) if isinstance(capabilities, dict) else {}, info)
        wire = LegacyWire(outlet, client, correlation_id, self._streams, self._asking)
        outcome = await self._turn(inbound, view, asked, client, wire, correlation_id, trace)
        status, more = self._shown(inbound, outcome)
        if outcome.code is None:
            id = self._sessions.mint(inbound.caller, version, client.capabilities, info)
            more = (*more, (b"mcp-session-id", id.encode()))
        await wire.finish(status, outcome.body, *more)

    async def _serve(
        self,
        inbound: McpHttpRequest,
        outlet: ResponseWriter,
        view: View,
        session: McpSession,
        asked: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        client = session.client
        if (level := self._sessions.rows.log_level(session.digest)) is not None:
            client = replace(client, log_level=level)
        accept, principal = inbound.headers.get("accept", "*/*"), inbound.caller.principal
        wire = LegacyWire(outlet, client, correlation_id, self._streams, self._asking, accept, principal)
        # Of a loop that is asked for once: before Python 3.12 each time takes a system call.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        assert asked.id is not None
        key = (session.digest, asked.id)
        self._running[key] = task
        self._pulse.add(wire)
        try:
            outcome = await self._turn(inbound, view, asked, client, wire, correlation_id, trace)
        except asyncio.CancelledError:
            if task not in self._cancelled:
                wire.abandon()
                raise
            task.uncancel()
            outcome = RequestOutcome(error_bytes(asked.id, _cancelled(correlation_id)))
        finally:
            self._pulse.discard(wire)
            if self._running.get(key) is task:
                del self._running[key]
            self._cancelled.discard(task)
        status, more = self._shown(inbound, outcome)
        await wire.finish(status, outcome.body, *more, *timing(inbound, outcome.record))

    def _shown(self, inbound: McpHttpRequest, outcome: RequestOutcome) -> tuple[int, tuple[Header, ...]]:
        if outcome.lacking is None:
            return 200, outcome.headers
        return self._floor.lacking(outcome.lacking, inbound, modern=False)

    def _turn(
        self,
        inbound: McpHttpRequest,
        view: View,
        asked: Message,
        client: ClientProfile,
        wire: LegacyWire,
        correlation_id: str,
        trace: dict[str, str],
    ) -> Awaitable[RequestOutcome]:
        end = self._ends.get(asked.method)
        if end is None:
            end = self.refused(ForeignError(METHOD_NOT_FOUND, "Method not found", asked.method))
            asked = replace(asked, method=OTHER)
        return handle_request(InboundRequest(inbound, view, asked, client, wire, correlation_id, trace), end, self)

    def refused(self, reason: Refusal) -> Handler:
        return self._floor.refused(reason)

    def prepared(self, turn: InboundRequest) -> Prepared:
        method, params = turn.asked.method, turn.asked.params
        check(method, params)
        return (*find(turn.view, method, params), None) if method in CARRIED else (None, params, None)

    def finished(self, call: Call, result: Result) -> Result:
        if isinstance(result, bytes) or call.method not in CARRIED:
            return result
        return downgrade(result, call.client.version, call.id)

    def _cancel(self, digest: str, id: str | int) -> bool:
        """False when no such request runs here."""
        task = self._running.get((digest, id))
        if task is not None:
            self._cancelled.add(task)
            task.cancel()
        return task is not None

    def _cancelled_elsewhere(self, about: Json) -> None:
        self._cancel(about["session"], about["id"])

    def _cancel_all(self, digest: str) -> None:
        for each, id in list(self._running):
            if each == digest:
                self._cancel(digest, id)

    def _end_here(self, digest: str) -> None:
        self._cancel_all(digest)
        self._standing.end(digest)

    # ---- what the gateway answers itself ----

    async def _initialize(self, call: Call) -> Result:
        view = seen(self._floor.catalogue, call)
        capabilities = {key: value for key, value in view.capabilities().items() if key != "extensions"}
        return {
            "protocolVersion": call.client.version,
            "capabilities": capabilities,
            "serverInfo": self._floor.server_info,
            "instructions": view.instructions(),
        }

    async def _set_level(self, call: Call) -> Result:
        session = call.client.session or ""
        await self._sessions.rows.set_log_level(session, check_level(call.params["level"]), _until())
        return {}

    async def _subscribe(self, call: Call) -> Result:
        uri = cast("str", call.params["uri"])
        if seen(self._floor.catalogue, call).resource(uri) is None:
            raise UnknownName(f"Unknown resource: {uri[:128]}", uri=uri)
        rows, session = self._sessions.rows, call.client.session or ""
        fresh = uri not in rows.subscriptions(session)
        await rows.subscribe(session, uri, _until())
        try:
            return await self._subscriptions_changed(call)
        except (Fault, ForeignError):
            if fresh:  # its backend does not agree to it
                await rows.unsubscribe(session, uri)
            raise

    async def _unsubscribe(self, call: Call) -> Result:
        await self._sessions.rows.unsubscribe(call.client.session or "", call.params["uri"])
        return await self._subscriptions_changed(call)

    async def _subscriptions_changed(self, call: Call) -> Result:
        session = call.client.session or ""
        await self._standing.listen_for(call.caller, call.client, call.endpoint, session)
        await self._news.tell("subscribed", {"session": session})
        return {}


def _cancelled(correlation_id: str) -> RpcError:
    fault = Fault(Kind.CANCELLED, "The client cancelled this request.", stage="edge")
    data = fault.as_object(correlation_id=correlation_id, origin="gateway", stage="edge", words={})
    return RpcError(number(fault.kind, modern=False), fault.message, data)


def _until() -> float:
    return time.time() + SESSION_SECONDS


async def _pong(call: Call) -> Result:
    return {}


def _negotiated(asked: Any) -> str:
    return asked if asked in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
