"""2026-07-28 at the north door: no handshake, no session; every request stands alone."""

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
from gateway.protocol.context import CARRIED, IS_LIST, LARGE, EndpointContext, Refusal, find, list_end, read_aside, seen
from gateway.protocol.messages import LOG_LEVELS, Message, check, message
from gateway.protocol.multi_round import (
    MULTI_ROUND,
    MultiRound,
    ParkedCall,
    ParkedCalls,
    missing_capabilities,
    without_elicitation_id,
)
from gateway.protocol.request_handling import (
    OTHER,
    Correlation,
    InboundRequest,
    Prepared,
    RequestRefusals,
    handle_request,
)
from gateway.protocol.responses import RpcError, headers, readdressed, result_bytes, timing
from gateway.protocol.strict_json import InvalidJson, decode
from gateway.protocol.subscriptions import ListenHandler
from gateway.protocol.wire import KeepAlive, ModernWire
from gateway.protocol.worker_proxy import WorkerProxy

METHOD_NOT_FOUND: Final = -32601
HEADER_MISMATCH: Final = -32020
INVALID_PARAMS: Final = -32602
INVALID_REQUEST: Final = -32600


class ModernEra:
    """Answers POSTs of the modern era: JSON, unless the call notifies or runs long, then an event stream."""

    def __init__(
        self,
        floor: EndpointContext,
        listen: ListenHandler,
        rounds: MultiRound,
        pulse: KeepAlive,
        parking: ParkedCalls,
        relay: WorkerProxy,
    ) -> None:
        self._floor = floor
        self.refusals = RequestRefusals(floor, MODERN)
        self._relay = relay
        relay.serve("parked", self._went_on_here)
        self._rounds = rounds
        self._pulse = pulse
        self._parking = parking
        self._ends: dict[str, Handler] = {
            **dict.fromkeys(CARRIED, floor.path),
            **dict.fromkeys(IS_LIST, floor.lists(list_end(floor.catalogue))),
            "server/discover": floor.lists(self._discover),
            "subscriptions/listen": floor.lists(listen),
        }

    async def post(self, inbound: McpHttpRequest, outlet: ResponseWriter) -> None:
        try:
            raw = inbound.body
            body = decode(raw) if len(raw) < LARGE else await read_aside(raw)
            asked = message(body)
        except InvalidJson as exc:
            await self._refuse(inbound, outlet, RpcError(exc.code, exc.message), id=exc.id)
            return
        correlation_id, trace = correlation = self._floor.correlate(inbound.headers, asked.params.get("_meta"))
        refusal = self._climb(inbound, body, asked)
        view = self._floor.view(inbound)
        if refusal is None and view is None:
            refusal = RpcError(METHOD_NOT_FOUND, "There is no such endpoint.")
        if refusal is not None:
            method = asked.method if asked.method in self._ends else OTHER
            await self._refuse(inbound, outlet, refusal, id=asked.id, method=method, correlation=correlation)
        elif asked.kind == "notification":
            if (fault := await self.refusals.charge(inbound, correlation)) is not None:
                await self.refusals.tell(inbound, outlet, 0, fault, correlation=correlation)
            else:
                await outlet.answer(202, headers(correlation_id), b"")
        else:
            assert view is not None
            await self._serve(inbound, outlet, view, asked, correlation_id, trace)

    def _climb(self, inbound: McpHttpRequest, body: Json, asked: Message) -> RpcError | None:
        """The ladder: the first rung that fails says why."""
        if inbound.duplicate is not None:
            return RpcError(HEADER_MISMATCH, f"{inbound.duplicate} header appears more than once")
        if asked.kind == "response":
            return RpcError(INVALID_REQUEST, "This revision has no requests to the client, so no responses either.")
        if asked.kind == "notification":
            rung = unsupported_protocol_version_rejection(inbound.headers["mcp-protocol-version"])
            return RpcError(rung.code, rung.message, rung.data) if rung else None
        if not _plainly_right(inbound.headers, asked):
            rung = classify_inbound_request(body, headers=inbound.headers)
            if isinstance(rung, InboundLadderRejection):
                return RpcError(rung.code, rung.message, rung.data)
        meta = asked.params["_meta"]
        if not isinstance(meta[CLIENT_CAPABILITIES_META_KEY], dict):
            return RpcError(INVALID_PARAMS, "The client capabilities of the envelope must be an object.")
        level = meta.get(LOG_LEVEL_META_KEY)
        if level is not None and level not in LOG_LEVELS:
            return RpcError(INVALID_PARAMS, f"The log level must be one of {', '.join(LOG_LEVELS)}.")
        if asked.method not in self._ends:
            return RpcError(METHOD_NOT_FOUND, "Method not found", asked.method)
        return None

    async def _serve(
        self,
        inbound: McpHttpRequest,
        outlet: ResponseWriter,
        view: View,
        asked: Message,
        correlation_id: str,
        trace: dict[str, str],
    ) -> None:
        meta = cast("Json", asked.params["_meta"])
        info: Any = meta.get(CLIENT_INFO_META_KEY)
        client = ClientProfile(MODERN, meta[CLIENT_CAPABILITIES_META_KEY], info, meta.get(LOG_LEVEL_META_KEY))
        if "requestState" in asked.params and await self._went_on(inbound, outlet, asked, (correlation_id, trace)):
            return
        wire = ModernWire(outlet, client, correlation_id, asked.id, partial(self._park, inbound.caller, asked, client))
        turn = InboundRequest(inbound, view, asked, client, wire, correlation_id, trace)
        self._pulse.add(wire)
        try:
            outcome = await handle_request(turn, self._ends[asked.method], self)
            status, more = 200, outcome.headers
            if outcome.code is not None:
                status = ERROR_CODE_HTTP_STATUS.get(outcome.code, 200)
            if outcome.lacking is not None:
                status, more = self._floor.lacking(outcome.lacking, inbound, modern=True)
            body = outcome.body if wire.request_id == asked.id else readdressed(outcome.body, asked.id, wire.request_id)
            await wire.finish(status, body, *more, *timing(inbound, outcome.record))
        except asyncio.CancelledError:
            # The client closed its stream, which is how it cancels. Anything else is the server stopping.
            task = asyncio.current_task()
            if not wire.gone or task is None:
                raise
            task.uncancel()
        finally:
            self._pulse.discard(wire)
            wire.let_go()

    # ---- calls that wait for their client ----

    async def _park(
        self, caller: Caller, asked: Message, client: ClientProfile, wire: ModernWire, requests: Mapping[str, Json]
    ) -> dict[str, Json]:
        """End the answer under way with what is asked, and wait for the request that brings the answers."""
        missing = missing_capabilities(client.capabilities, dict(requests))
        if missing:
            raise Fault(Kind.UNSUPPORTED, f"The client cannot do {' and '.join(missing)}.")
        parked = ParkedCall({key: without_elicitation_id(request) for key, request in requests.items()})
        state = self._parking.put(parked, wire, caller.tenant)
        try:
            await self._say_input_required(wire, caller, asked, parked.requests, state)
            return await parked.answers()
        finally:
            self._parking.forget(state)

    async def _went_on(
        self, inbound: McpHttpRequest, outlet: ResponseWriter, asked: Message, correlation: Correlation
    ) -> bool:
        """Whether the request belonged to a waiting call: then it is answered by that call."""
        if asked.method not in MULTI_ROUND:
            return False
        try:
            check(asked.method, asked.params)
            # Sealed without a namespace: no backend can make a state that is taken for one of ours.
            state = self._rounds.back(inbound.caller, asked.method, asked.params, "")["requestState"]
        except (ForeignError, Fault):
            return False  # a backend's, or none at all: judged where every other request is
        asks: Json = {
            "state": state,
            "id": asked.id,
            "method": asked.method,
            "params": asked.params,
            "principal": [inbound.caller.tenant, inbound.caller.kind, inbound.caller.subject],
        }
        try:
            if (spent := await self.refusals.charge(inbound, correlation)) is not None:
                raise spent
            worker = self._parking.elsewhere(state)
            if worker is None:
                await self._went_on_here(asks, outlet)
            else:
                await self._relay.fetch(worker, "parked", asks, outlet)
        except Fault as fault:
            if fault.kind not in (Kind.ILLEGAL_STATE, Kind.RATE_LIMITED):
                fault = Fault(Kind.UNAVAILABLE, "The call that asked is gone; make it again.")
            about: Json = {"id": asked.id, "method": asked.method, "correlation": correlation}
            await self.refusals.tell(inbound, outlet, 200, fault, **about)
        return True

    async def _went_on_here(self, asks: Json, outlet: ResponseWriter) -> None:
        """Go on with a call that waits in this worker. Raises `Fault` when it does not, before anything is answered."""
        tenant, kind, subject = asks["principal"]
        caller = Caller(tenant, subject, kind)
        asked = Message("request", asks["id"], asks["method"], asks["params"])
        parked, wire = self._parking.find(asks["state"])
        assert isinstance(wire, ModernWire)
        answered = wire.resume(outlet, asked.id)
        missing = parked.take(cast("dict[str, Json]", asked.params.get("inputResponses") or {}))
        if missing:
            await self._say_input_required(wire, caller, asked, missing, asks["state"])
        else:
            await wire.catch_up()
        await answered.wait()

    async def _say_input_required(
        self, wire: ModernWire, caller: Caller, asked: Message, requests: Mapping[str, Json], state: str
    ) -> None:
        result: Json = {
            "resultType": "input_required",
            "inputRequests": dict(requests),
            "requestState": self._rounds.sealed(caller, asked.method, asked.params, "", state),
            "_meta": {SERVER_INFO: self._floor.server_info},
        }
        await wire.finish(200, result_bytes(wire.request_id, result))

    async def _refuse(self, inbound: McpHttpRequest, outlet: ResponseWriter, error: RpcError, **about: Any) -> None:
        await self.refusals.tell(inbound, outlet, ERROR_CODE_HTTP_STATUS.get(error.code, 200), error, **about)

    # ---- what goes in and what comes out ----

    def refused(self, reason: Refusal) -> Handler:
        return self._floor.refused(reason)

    def prepared(self, turn: InboundRequest) -> Prepared:
        inbound, method, params = turn.inbound, turn.asked.method, turn.asked.params
        check(method, params)
        if method not in CARRIED:
            return None, params, None
        route, params = find(turn.view, method, params)
        if route is not None and route.header_schema is not None:
            rung = validate_mcp_param_headers(route.header_schema, params.get("arguments") or {}, inbound.headers)
            if rung is not None:
                raise ForeignError(rung.code, rung.message, rung.data)
        answered = None
        if "requestState" in params and method in MULTI_ROUND:
            namespace = route.namespace if route else None
            params, answered = self._rounds.opened(inbound.caller, method, params, namespace)
        return route, params, answered

    def finished(self, call: Call, result: Result) -> Result:
        """The result with what this revision requires of every result. Lists come finished."""
        if isinstance(result, bytes):
            return result
        own = cast("Json", result.get("_meta") or {})
        meta = {**own, SERVER_INFO: self._floor.server_info, "correlation_id": call.id}
        kind = result.get("resultType") or "complete"
        finished = {**result, "resultType": kind, "_meta": meta}
        if kind == "input_required":
            return self._rounds.out(call, finished)
        if call.method == "resources/read":
            finished.setdefault("ttlMs", 0)
            finished.setdefault("cacheScope", "private")
        return finished

    async def _discover(self, call: Call) -> Result:
        view = seen(self._floor.catalogue, call)
        return {
            "supportedVersions": [MODERN],
            "capabilities": view.capabilities(),
            "instructions": view.instructions(),
            **view.cache_hints(),
        }


def _plainly_right(headers: Mapping[str, str], asked: Message) -> bool:
    """Whether envelope and headers agree word for word. The SDK's ladder judges, and words, all that do not."""
    given = asked.params.get("_meta")
    meta = cast("Json", given) if isinstance(given, dict) else {}
    if CLIENT_CAPABILITIES_META_KEY not in meta:
        return False
    if meta.get(PROTOCOL_VERSION_META_KEY) != MODERN or headers.get("mcp-protocol-version") != MODERN:
        return False
    if headers.get("mcp-method") != asked.method:
        return False
    key = NAME_BEARING_METHODS.get(asked.method)
    if key is None:
        return True
    name = headers.get("mcp-name", "")
    return name == asked.params.get(key) and not name.startswith("=?")
