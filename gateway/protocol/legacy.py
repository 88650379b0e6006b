"""Serves clients of the handshake era (protocol revisions 2024-11-05 to 2025-11-25).

Sessions are stateless: any replica can serve a request of any session. `EraRouter` dispatches to `LegacyEra`.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Final, cast

from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from msgspec.structs import replace

from gateway.catalogue.view import View
from gateway.contract import Call, ClientProfile, Handler, Json, McpHttpRequest, ResponseWriter, Result
from gateway.error_rendering import rpc_code
from gateway.errors import Fault, ForeignError, Kind, UnknownName
from gateway.protocol.client_requests import ClientRequests, encode_response
from gateway.protocol.context import (
    BACKEND_METHODS,
    HANDSHAKE_TASK_METHODS,
    LARGE_BODY_BYTES,
    LIST_METHODS,
    EndpointContext,
    Refusal,
    decode_in_thread,
    find_called_route,
    make_list_handler,
    require_view,
    select_handler,
)
from gateway.protocol.downgrade import downgrade
from gateway.protocol.event_streams import EventStreams
from gateway.protocol.get_stream import GetStreams
from gateway.protocol.messages import Message, check_log_level, check_params, is_id, parse_message
from gateway.protocol.request_handling import (
    OTHER_METHOD,
    Correlation,
    InboundRequest,
    PreparedRequest,
    RequestOutcome,
    RequestRefusals,
    handle_request,
)
from gateway.protocol.responses import Header, RpcError, error_bytes, json_headers, server_timing
from gateway.protocol.sealed_tokens import SESSION_SECONDS
from gateway.protocol.sessions import McpSession, McpSessions
from gateway.protocol.stream_limits import StreamLimits
from gateway.protocol.strict_json import InvalidJson, decode
from gateway.protocol.wire import KeepAlive, LegacyWire
from gateway.protocol.worker_events import WorkerEvents

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
SESSION_NOT_FOUND: Final = -32001
_NO_ENDPOINT: Final = RpcError(METHOD_NOT_FOUND, "There is no such endpoint.")
_MISSING_SESSION: Final = RpcError(INVALID_REQUEST, "Missing Mcp-Session-Id header: begin with initialize.")
_UNKNOWN_SESSION: Final = RpcError(SESSION_NOT_FOUND, "Session not found: begin again with initialize.")


class LegacyEra:
    """Serves POST, GET and DELETE requests of the handshake era; implements `Era`."""

    def __init__(
        self,
        context: EndpointContext,
        sessions: McpSessions,
        streams: EventStreams,
        client_requests: ClientRequests,
        get_streams: GetStreams,
        keep_alive: KeepAlive,
        worker_events: WorkerEvents,
        limits: StreamLimits,
        *,
        answer_through_store: bool = True,
    ) -> None:
        """`answer_through_store`: forward client answers to other processes through the session store if there is no
        bus."""
        self._context = context
        self._answer_through_store = answer_through_store
        self.refusals = RequestRefusals(context, LATEST_HANDSHAKE_VERSION)
        self._limits = limits
        self._worker_events = worker_events
        worker_events.subscribe("cancelled", self._on_peer_cancelled)
        worker_events.subscribe("ended", lambda payload: self._on_peer_session_ended(payload["session"]))
        worker_events.subscribe("subscribed", lambda payload: get_streams.refresh_subscriptions(payload["session"]))
        worker_events.subscribe("standing", lambda payload: get_streams.end_stream(payload["session"]))
        self._sessions = sessions
        self._streams = streams
        self._client_requests = client_requests
        self._get_streams = get_streams
        sessions.store.on_answer(client_requests.deliver_stored)
        self._keep_alive = keep_alive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[tuple[str, str | int], asyncio.Task[Any]] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        """Tasks, not request ids: a client may wrongly use one id for two requests."""
        self._handlers: dict[str, Handler] = {
            **dict.fromkeys(BACKEND_METHODS, context.call_handler),
            "tools/call": context.tool_handler,
            **dict.fromkeys(HANDSHAKE_TASK_METHODS, context.task_handler),
            **dict.fromkeys(LIST_METHODS, context.make_local_handler(make_list_handler(context.catalogue))),
            "initialize": context.make_local_handler(self._initialize),
            "ping": context.make_local_handler(_ping),
            "logging/setLevel": context.make_local_handler(self._set_level),
            "resources/subscribe": context.make_local_handler(self._subscribe),
            "resources/unsubscribe": context.make_local_handler(self._unsubscribe),
        }
        self._search_handler = context.make_local_handler(context.tool_search.make_handler())

    # ---- HTTP methods ----

    async def post(self, request: McpHttpRequest, writer: ResponseWriter) -> None:
        try:
            raw = request.body
            message = parse_message(decode(raw) if len(raw) < LARGE_BODY_BYTES else await decode_in_thread(raw))
        except InvalidJson as exc:
            await self.refusals.refuse(request, writer, 400, RpcError(exc.code, exc.message), id=exc.id)
            return
        correlation_id, trace = correlation = self._context.correlate(request.headers, message.params.get("_meta"))
        view = self._context.catalogue.view(request.caller, request.path)
        if view is None:
            fields: Json = {"id": message.id, "method": self._method_label(message.method), "correlation": correlation}
            await self.refusals.refuse(request, writer, 404, _NO_ENDPOINT, **fields)
            return
        if message.method == "initialize" and message.kind == "request":
            await self._open_session(request, writer, view, message, correlation_id, trace)
            return
        session = self._sessions.find(request.caller, request.headers.get("mcp-session-id", ""))
        if session is None:
            await self._refuse_session(request, writer, correlation, message.id, self._method_label(message.method))
            return
        if message.kind == "request":
            await self._serve(request, writer, view, session, message, correlation_id, trace)
            return
        rate_fault = await self.refusals.charge(request, correlation)
        handled = await self._handle_non_request(session.digest, message, local_only=rate_fault is not None)
        if not handled and rate_fault is not None:
            await self.refusals.refuse(request, writer, 0, rate_fault, correlation=correlation)
            return
        await writer.send(202, json_headers(correlation_id), b"")

    async def _handle_non_request(self, digest: str, received: Message, *, local_only: bool) -> bool:
        """Handle a response or notification; return whether it concerned a call of this worker.

        With `local_only`, it is not forwarded to other workers.
        """
        if received.kind == "response":
            if self._client_requests.deliver(digest, received):
                return True
            if not local_only and self._client_requests.belongs_to_other_worker(digest, received.id):
                forwarded = await self._client_requests.forward(digest, received)
                if not forwarded and self._answer_through_store:
                    await self._sessions.store.add_answer(digest, str(received.id), encode_response(received))
        elif received.method == "notifications/cancelled" and is_id(id := received.params.get("requestId")):
            if self._cancel(digest, id):
                return True
            if not local_only:
                await self._worker_events.publish("cancelled", {"session": digest, "id": id})
        return False

    async def get(self, request: McpHttpRequest, writer: ResponseWriter) -> None:
        correlation_id, _ = correlation = self._context.correlate(request.headers, None)
        if self._context.catalogue.view(request.caller, request.path) is None:
            await self.refusals.refuse(request, writer, 404, _NO_ENDPOINT, correlation=correlation)
            return
        session = self._sessions.find(request.caller, request.headers.get("mcp-session-id", ""))
        if session is None:
            await self._refuse_session(request, writer, correlation)
        else:
            try:
                with self._limits.hold(request.caller):
                    if "last-event-id" not in request.headers:
                        await self._end_get_stream(session.digest)
                    # Awaited inside the block, so that the stream counts against the limits while it is open.
                    await self._get_streams.open(request, writer, session, correlation_id)
            except Fault as fault:
                await self.refusals.refuse(request, writer, 0, fault, correlation=correlation)

    async def _end_get_stream(self, digest: str) -> None:
        """End the session's GET stream in whichever worker it is: a session has at most one."""
        self._get_streams.end_stream(digest)
        await self._worker_events.publish("standing", {"session": digest})

    async def delete(self, request: McpHttpRequest, writer: ResponseWriter) -> None:
        correlation_id, _ = correlation = self._context.correlate(request.headers, None)
        session = self._sessions.find(request.caller, request.headers.get("mcp-session-id", ""))
        if session is None:
            await self._refuse_session(request, writer, correlation)
        else:
            await self._sessions.end(session)
            self._cancel_all(session.digest)
            await self._get_streams.remove_session(session.digest)
            await self._worker_events.publish("ended", {"session": session.digest})
            await writer.send(204, json_headers(correlation_id), b"")

    async def _refuse_session(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        correlation: Correlation,
        id: str | int | None = None,
        method: str = OTHER_METHOD,
    ) -> None:
        status, error = (404, _UNKNOWN_SESSION) if "mcp-session-id" in request.headers else (400, _MISSING_SESSION)
        await self.refusals.refuse(request, writer, status, error, id=id, method=method, correlation=correlation)

    def _method_label(self, method: str) -> str:
        """Return the method for traces and metrics."""
        return method if method in self._handlers else OTHER_METHOD

    # ---- requests ----

    async def _open_session(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        view: View,
        message: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        params = message.params
        version = _negotiate_version(params.get("protocolVersion"))
        capabilities: Any = params.get("capabilities")
        client_info: Any = params.get("clientInfo")
        info = cast("Json", client_info) if isinstance(client_info, dict) else None
        client = ClientProfile(version, cast("Json", capabilities) if isinstance(capabilities, dict) else {}, info)
        wire = LegacyWire(writer, client, correlation_id, self._streams, self._client_requests)
        outcome = await self._handle(request, view, message, client, wire, correlation_id, trace)
        status, extra_headers = self._status_and_headers(request, outcome)
        if outcome.code is None:
            id = self._sessions.mint(request.caller, version, client.capabilities, info)
            extra_headers = (*extra_headers, (b"mcp-session-id", id.encode()))
        await wire.finish(status, outcome.body, *extra_headers)

    async def _serve(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        view: View,
        session: McpSession,
        message: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        client = session.client
        if (level := self._sessions.store.log_level(session.digest)) is not None:
            client = replace(client, log_level=level)
        accept, principal = request.headers.get("accept", "*/*"), request.caller.principal
        wire = LegacyWire(writer, client, correlation_id, self._streams, self._client_requests, accept, principal)
        # The loop is cached: before Python 3.12, `current_task()` without it takes a system call.
        loop = self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        assert message.id is not None
        key = (session.digest, message.id)
        self._running[key] = task
        self._keep_alive.add(wire)
        try:
            outcome = await self._handle(request, view, message, client, wire, correlation_id, trace)
        except asyncio.CancelledError:
            if task not in self._cancelled:
                wire.abandon()
                raise
            task.uncancel()
            outcome = RequestOutcome(error_bytes(message.id, _cancelled_error(correlation_id)))
        finally:
            self._keep_alive.discard(wire)
            if self._running.get(key) is task:
                del self._running[key]
            self._cancelled.discard(task)
        status, extra_headers = self._status_and_headers(request, outcome)
        await wire.finish(status, outcome.body, *extra_headers, *server_timing(request, outcome.record))

    def _status_and_headers(self, request: McpHttpRequest, outcome: RequestOutcome) -> tuple[int, tuple[Header, ...]]:
        if outcome.scope_fault is None:
            return 200, outcome.headers
        return self._context.insufficient_scope_response(outcome.scope_fault, request, modern=False)

    def _handle(
        self,
        request: McpHttpRequest,
        view: View,
        message: Message,
        client: ClientProfile,
        wire: LegacyWire,
        correlation_id: str,
        trace: dict[str, str],
    ) -> Awaitable[RequestOutcome]:
        handler = select_handler(request, view, message, self._handlers, self._search_handler)
        if handler is None:
            handler = self.refusal_handler(ForeignError(METHOD_NOT_FOUND, "Method not found", message.method))
            message = replace(message, method=OTHER_METHOD)
        inbound = InboundRequest(request, view, message, client, wire, correlation_id, trace)
        return handle_request(inbound, handler, self)

    def refusal_handler(self, reason: Refusal) -> Handler:
        return self._context.make_refusal_handler(reason)

    def prepare(self, inbound: InboundRequest) -> PreparedRequest:
        method, params = inbound.message.method, inbound.message.params
        check_params(method, params)
        if method not in BACKEND_METHODS:
            return None, params, None
        return (*find_called_route(inbound.http_request, inbound.view, inbound.message), None)

    def finalize(self, call: Call, result: Result) -> Result:
        if isinstance(result, bytes) or call.method not in BACKEND_METHODS:
            return result
        return downgrade(result, call.client.version, call.id)

    def _cancel(self, digest: str, id: str | int) -> bool:
        """Cancel a running request; return False if it does not run in this worker."""
        task = self._running.get((digest, id))
        if task is not None:
            self._cancelled.add(task)
            task.cancel()
        return task is not None

    def _on_peer_cancelled(self, payload: Json) -> None:
        self._cancel(payload["session"], payload["id"])

    def _cancel_all(self, digest: str) -> None:
        for session, id in list(self._running):
            if session == digest:
                self._cancel(digest, id)

    def _on_peer_session_ended(self, digest: str) -> None:
        self._cancel_all(digest)
        self._get_streams.end_stream(digest)

    # ---- methods that the gateway answers itself ----

    async def _initialize(self, call: Call) -> Result:
        view = require_view(self._context.catalogue, call)
        return {
            "protocolVersion": call.client.version,
            "capabilities": view.handshake_capabilities(call.client.version, _declared_extensions(call.client)),
            "serverInfo": self._context.server_info,
            "instructions": view.instructions(),
        }

    async def _set_level(self, call: Call) -> Result:
        session = call.client.session or ""
        await self._sessions.store.set_log_level(session, check_log_level(call.params["level"]), _session_expiry())
        return {}

    async def _subscribe(self, call: Call) -> Result:
        uri = cast("str", call.params["uri"])
        if require_view(self._context.catalogue, call).find_resource(uri) is None:
            raise UnknownName(f"Unknown resource: {uri[:128]}", uri=uri)
        store, session = self._sessions.store, call.client.session or ""
        is_new = uri not in store.subscriptions(session)
        await store.subscribe(session, uri, _session_expiry())
        try:
            return await self._sync_subscriptions(call)
        except (Fault, ForeignError):
            if is_new:  # the backend refused it
                await store.unsubscribe(session, uri)
            raise

    async def _unsubscribe(self, call: Call) -> Result:
        await self._sessions.store.unsubscribe(call.client.session or "", call.params["uri"])
        return await self._sync_subscriptions(call)

    async def _sync_subscriptions(self, call: Call) -> Result:
        session = call.client.session or ""
        await self._get_streams.sync_subscriptions(call.caller, call.client, call.endpoint, session)
        await self._worker_events.publish("subscribed", {"session": session})
        return {}


def _declared_extensions(client: ClientProfile) -> Json:
    declared: Any = client.capabilities.get("extensions")
    return cast("Json", declared) if isinstance(declared, dict) else {}


def _cancelled_error(correlation_id: str) -> RpcError:
    fault = Fault(Kind.CANCELLED, "The client cancelled this request.", stage="edge")
    data = fault.as_object(correlation_id=correlation_id, origin="gateway", stage="edge", codes={})
    return RpcError(rpc_code(fault.kind, modern=False), fault.message, data)


def _session_expiry() -> float:
    return time.time() + SESSION_SECONDS


async def _ping(call: Call) -> Result:
    return {}


def _negotiate_version(requested: Any) -> str:
    return requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
