"""Serves clients of the modern era (protocol revision 2026-07-28), which has no handshake and no sessions.

`EraRouter` dispatches to `ModernEra`.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    NAME_BEARING_METHODS,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, LOG_LEVEL_META_KEY, PROTOCOL_VERSION_META_KEY

from gateway.catalogue.view import SERVER_INFO, View
from gateway.contract import (
    MODERN,
    Call,
    Caller,
    ClientProfile,
    Handler,
    Json,
    McpHttpRequest,
    ResponseWriter,
    Result,
)
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.context import (
    BACKEND_METHODS,
    LARGE_BODY_BYTES,
    LIST_METHODS,
    MODERN_TASK_METHODS,
    EndpointContext,
    Refusal,
    decode_in_thread,
    find_called_route,
    make_list_handler,
    require_view,
    select_handler,
)
from gateway.protocol.messages import LOG_LEVELS, Message, check_params, parse_message
from gateway.protocol.multi_round import (
    MULTI_ROUND_METHODS,
    MultiRound,
    ParkedCall,
    ParkedCalls,
    missing_capabilities,
    without_elicitation_id,
)
from gateway.protocol.request_handling import (
    OTHER_METHOD,
    Correlation,
    InboundRequest,
    PreparedRequest,
    RequestRefusals,
    handle_request,
)
from gateway.protocol.responses import RpcError, json_headers, result_bytes, server_timing, with_request_id
from gateway.protocol.strict_json import InvalidJson, decode
from gateway.protocol.subscriptions import ListenHandler
from gateway.protocol.wire import KeepAlive, ModernWire
from gateway.protocol.worker_proxy import WorkerProxy

METHOD_NOT_FOUND: Final = -32601
HEADER_MISMATCH: Final = -32020
INVALID_PARAMS: Final = -32602
INVALID_REQUEST: Final = -32600


class ModernEra:
    """Serves POST requests of the modern era; implements `Era`.

    The response is JSON, unless the call sends notifications or runs long: then it is an event stream.
    """

    def __init__(
        self,
        context: EndpointContext,
        listen: ListenHandler,
        multi_round: MultiRound,
        keep_alive: KeepAlive,
        parked_calls: ParkedCalls,
        worker_proxy: WorkerProxy,
    ) -> None:
        self._context = context
        self.refusals = RequestRefusals(context, MODERN)
        self._worker_proxy = worker_proxy
        worker_proxy.serve("parked", self._resume_parked_here)
        self._multi_round = multi_round
        self._keep_alive = keep_alive
        self._parked_calls = parked_calls
        self._handlers: dict[str, Handler] = {
            **dict.fromkeys(BACKEND_METHODS, context.call_handler),
            "tools/call": context.tool_handler,
            **dict.fromkeys(MODERN_TASK_METHODS, context.task_handler),
            **dict.fromkeys(LIST_METHODS, context.make_local_handler(make_list_handler(context.catalogue))),
            "server/discover": context.make_local_handler(self._discover),
            "subscriptions/listen": context.make_local_handler(listen),
        }
        self._search_handler = context.make_local_handler(context.tool_search.make_handler())

    async def post(self, request: McpHttpRequest, writer: ResponseWriter) -> None:
        try:
            raw = request.body
            body = decode(raw) if len(raw) < LARGE_BODY_BYTES else await decode_in_thread(raw)
            message = parse_message(body)
        except InvalidJson as exc:
            await self._refuse(request, writer, RpcError(exc.code, exc.message), id=exc.id)
            return
        correlation_id, trace = correlation = self._context.correlate(request.headers, message.params.get("_meta"))
        refusal = self._check_request(request, body, message)
        view = self._context.catalogue.view(request.caller, request.path)
        if refusal is None and view is None:
            refusal = RpcError(METHOD_NOT_FOUND, "There is no such endpoint.")
        if refusal is not None:
            method = message.method if message.method in self._handlers else OTHER_METHOD
            await self._refuse(request, writer, refusal, id=message.id, method=method, correlation=correlation)
        elif message.kind == "notification":
            if (fault := await self.refusals.charge(request, correlation)) is not None:
                await self.refusals.refuse(request, writer, 0, fault, correlation=correlation)
            else:
                await writer.send(202, json_headers(correlation_id), b"")
        else:
            assert view is not None
            await self._serve(request, writer, view, message, correlation_id, trace)

    def _check_request(self, request: McpHttpRequest, body: Json, message: Message) -> RpcError | None:
        """Return the error of the first check that fails; None if the message may be handled."""
        if request.duplicate_header is not None:
            return RpcError(HEADER_MISMATCH, f"{request.duplicate_header} header appears more than once")
        if message.kind == "response":
            return RpcError(
                INVALID_REQUEST,
                "This protocol revision has no requests to the client, so a client cannot send responses.",
            )
        if message.kind == "notification":
            rejection = unsupported_protocol_version_rejection(request.headers["mcp-protocol-version"])
            return RpcError(rejection.code, rejection.message, rejection.data) if rejection else None
        if not _headers_match(request.headers, message):
            rejection = classify_inbound_request(body, headers=request.headers)
            if isinstance(rejection, InboundLadderRejection):
                return RpcError(rejection.code, rejection.message, rejection.data)
        meta = message.params["_meta"]
        if not isinstance(meta[CLIENT_CAPABILITIES_META_KEY], dict):
            return RpcError(INVALID_PARAMS, "The client capabilities of the envelope must be an object.")
        level = meta.get(LOG_LEVEL_META_KEY)
        if level is not None and level not in LOG_LEVELS:
            return RpcError(INVALID_PARAMS, f"The log level must be one of {', '.join(LOG_LEVELS)}.")
        if message.method in MODERN_TASK_METHODS and request.headers.get("mcp-name") != message.params.get("taskId"):
            return RpcError(HEADER_MISMATCH, "mcp-name header does not match params.taskId")
        if message.method not in self._handlers:
            return RpcError(METHOD_NOT_FOUND, "Method not found", message.method)
        return None

    async def _serve(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        view: View,
        message: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        meta = cast("Json", message.params["_meta"])
        info: Any = meta.get(CLIENT_INFO_META_KEY)
        client = ClientProfile(MODERN, meta[CLIENT_CAPABILITIES_META_KEY], info, meta.get(LOG_LEVEL_META_KEY))
        if "requestState" in message.params:
            correlation = (correlation_id, trace)
            if await self._resume_parked(request, writer, message, correlation):
                return
        park = partial(self._park, request.caller, message, client)
        wire = ModernWire(writer, client, correlation_id, message.id, park)
        inbound = InboundRequest(request, view, message, client, wire, correlation_id, trace)
        self._keep_alive.add(wire)
        try:
            handler = select_handler(request, view, message, self._handlers, self._search_handler)
            assert handler is not None  # `_check_request` refused unknown methods
            outcome = await handle_request(inbound, handler, self)
            status, extra_headers = 200, outcome.headers
            if outcome.code is not None:
                status = ERROR_CODE_HTTP_STATUS.get(outcome.code, 200)
            if outcome.scope_fault is not None:
                fault = outcome.scope_fault
                status, extra_headers = self._context.insufficient_scope_response(fault, request, modern=True)
            body = outcome.body
            if wire.request_id != message.id:
                body = with_request_id(body, message.id, wire.request_id)
            await wire.finish(status, body, *extra_headers, *server_timing(request, outcome.record))
        except asyncio.CancelledError:
            # A client cancels by disconnecting. Any other cancellation means that the server stops.
            task = asyncio.current_task()
            if not wire.is_disconnected or task is None:
                raise
            task.uncancel()
        finally:
            self._keep_alive.discard(wire)
            wire.release_waiters()

    # ---- parked calls ----

    async def _park(
        self, caller: Caller, message: Message, client: ClientProfile, wire: ModernWire, requests: Mapping[str, Json]
    ) -> dict[str, Json]:
        """End the current response with the input requests, and wait for the request that answers them."""
        missing = missing_capabilities(client.capabilities, dict(requests))
        if missing:
            raise Fault(Kind.UNSUPPORTED, f"The client does not support {' and '.join(missing)}.")
        parked = ParkedCall({key: without_elicitation_id(request) for key, request in requests.items()})
        state = self._parked_calls.add(parked, wire, caller.tenant)
        try:
            await self._send_input_required(wire, caller, message, parked.requests, state)
            return await parked.wait_for_answers()
        finally:
            self._parked_calls.remove(state)

    async def _resume_parked(
        self, request: McpHttpRequest, writer: ResponseWriter, message: Message, correlation: Correlation
    ) -> bool:
        """Return whether the request resumes a parked call; that call then sends the response."""
        if message.method not in MULTI_ROUND_METHODS:
            return False
        try:
            check_params(message.method, message.params)
            # Parked calls use an empty namespace: no state of a backend can be taken for the state of a parked call.
            state = self._multi_round.open_params(request.caller, message.method, message.params, "")["requestState"]
        except (ForeignError, Fault):
            return False  # The state belongs to a backend or is invalid: `prepare` handles both.
        payload: Json = {
            "state": state,
            "id": message.id,
            "method": message.method,
            "params": message.params,
            "principal": [request.caller.tenant, request.caller.kind, request.caller.subject],
        }
        try:
            if (rate_fault := await self.refusals.charge(request, correlation)) is not None:
                raise rate_fault
            worker = self._parked_calls.other_worker(state)
            if worker is None:
                await self._resume_parked_here(payload, writer)
            else:
                await self._worker_proxy.fetch(worker, "parked", payload, writer)
        except Fault as fault:
            if fault.kind not in (Kind.ILLEGAL_STATE, Kind.RATE_LIMITED):
                fault = Fault(Kind.UNAVAILABLE, "The call that requested this input has ended. Make the call again.")
            fields: Json = {"id": message.id, "method": message.method, "correlation": correlation}
            await self.refusals.refuse(request, writer, 200, fault, **fields)
        return True

    async def _resume_parked_here(self, payload: Json, writer: ResponseWriter) -> None:
        """Resume a call that is parked in this worker. Raises `Fault` before anything is sent if there is none."""
        tenant, kind, subject = payload["principal"]
        caller = Caller(tenant, subject, kind)
        message = Message("request", payload["id"], payload["method"], payload["params"])
        parked, wire = self._parked_calls.find(payload["state"])
        assert isinstance(wire, ModernWire)
        answered = wire.resume(writer, message.id)
        missing = parked.add_answers(cast("dict[str, Json]", message.params.get("inputResponses") or {}))
        if missing:
            await self._send_input_required(wire, caller, message, missing, payload["state"])
        else:
            await wire.send_deferred()
        await answered.wait()

    async def _send_input_required(
        self, wire: ModernWire, caller: Caller, message: Message, requests: Mapping[str, Json], state: str
    ) -> None:
        result: Json = {
            "resultType": "input_required",
            "inputRequests": dict(requests),
            "requestState": self._multi_round.seal_state(caller, message.method, message.params, "", state),
            "_meta": {SERVER_INFO: self._context.server_info},
        }
        await wire.finish(200, result_bytes(wire.request_id, result))

    async def _refuse(self, request: McpHttpRequest, writer: ResponseWriter, error: RpcError, **fields: Any) -> None:
        await self.refusals.refuse(request, writer, ERROR_CODE_HTTP_STATUS.get(error.code, 200), error, **fields)

    # ---- implementation of `Era` ----

    def refusal_handler(self, reason: Refusal) -> Handler:
        return self._context.make_refusal_handler(reason)

    def prepare(self, inbound: InboundRequest) -> PreparedRequest:
        request, method, params = inbound.http_request, inbound.message.method, inbound.message.params
        check_params(method, params)
        if method not in BACKEND_METHODS:
            return None, params, None
        called, (route, params) = params, find_called_route(request, inbound.view, inbound.message)
        if route is not None and route.header_schema is not None and params is called:
            rejection = validate_mcp_param_headers(route.header_schema, params.get("arguments") or {}, request.headers)
            if rejection is not None:
                raise ForeignError(rejection.code, rejection.message, rejection.data)
        input_response = None
        if "requestState" in params and method in MULTI_ROUND_METHODS:
            namespace = route.namespace if route else None
            params, input_response = self._multi_round.open_request(request.caller, method, params, namespace)
        return route, params, input_response

    def finalize(self, call: Call, result: Result) -> Result:
        """Add the members that this revision requires of every result. Lists arrive encoded and complete."""
        if isinstance(result, bytes):
            return result
        own_meta = cast("Json", result.get("_meta") or {})
        meta = {**own_meta, SERVER_INFO: self._context.server_info, "correlation_id": call.id}
        kind = result.get("resultType") or "complete"
        final = {**result, "resultType": kind, "_meta": meta}
        if kind == "input_required":
            return self._multi_round.seal_result(call, final)
        if call.method == "resources/read":
            final.setdefault("ttlMs", 0)
            final.setdefault("cacheScope", "private")
        return final

    async def _discover(self, call: Call) -> Result:
        view = require_view(self._context.catalogue, call)
        return {
            "supportedVersions": [MODERN],
            "capabilities": view.capabilities(),
            "instructions": view.instructions(),
            **view.cache_hints(),
        }


def _headers_match(headers: Mapping[str, str], message: Message) -> bool:
    """Return whether envelope and headers are identical; the slower checks of the SDK decide all other cases."""
    envelope = message.params.get("_meta")
    meta = cast("Json", envelope) if isinstance(envelope, dict) else {}
    if CLIENT_CAPABILITIES_META_KEY not in meta:
        return False
    if meta.get(PROTOCOL_VERSION_META_KEY) != MODERN or headers.get("mcp-protocol-version") != MODERN:
        return False
    if headers.get("mcp-method") != message.method:
        return False
    key = NAME_BEARING_METHODS.get(message.method)
    if key is None:
        return True
    name = headers.get("mcp-name", "")
    return name == message.params.get(key) and not name.startswith("=?")
