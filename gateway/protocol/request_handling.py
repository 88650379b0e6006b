"""Runs one request of either era through its handler and encodes the response.

`handle_request` turns every failure into a response. `RequestRefusals` answers what is rejected before a call exists:
it is charged, audited and traced like any other failed request.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from gateway.catalogue.view import View
from gateway.contract import (
    Call,
    ClientProfile,
    Handler,
    InputResponse,
    Json,
    McpHttpRequest,
    NullWire,
    Record,
    ResponseWriter,
    Result,
    Route,
    Wire,
)
from gateway.error_rendering import rpc_code
from gateway.errors import TABLE, Fault, ForeignError, Kind
from gateway.protocol.context import EndpointContext, Refusal
from gateway.protocol.messages import Message
from gateway.protocol.responses import (
    Header,
    RpcError,
    error_bytes,
    json_headers,
    render_error,
    result_bytes,
    retry_after_header,
)
from gateway.protocol.tool_search import TOOLS_HEADER

log = logging.getLogger("gatehouse.protocol")

OTHER_METHOD: Final = "_OTHER"
"""The method label of unknown methods: a client must not be able to create metric series with names of its own."""

PreparedRequest = tuple[Route | None, Json, InputResponse | None]
"""The route, the params for the backend, and the client's answer to an input request of the gateway itself."""

Correlation = tuple[str, Mapping[str, str]]
"""The correlation id and the trace context."""

_NULL_WIRE: Final = NullWire()


class InboundRequest(Struct, frozen=True):
    """A parsed JSON-RPC request with its HTTP request, its client and the wire back to it."""

    http_request: McpHttpRequest
    view: View
    message: Message
    client: ClientProfile
    wire: Wire
    correlation_id: str
    trace: dict[str, str]


class Era(Protocol):
    """The steps of request handling that depend on the protocol revision."""

    def prepare(self, inbound: InboundRequest) -> PreparedRequest:
        """Check the params and find the route. Raises `Fault` or `ForeignError` if the request is invalid."""
        ...

    def refusal_handler(self, reason: Refusal) -> Handler:
        """Return a handler that charges, audits and traces a request that could not be prepared."""
        ...

    def finalize(self, call: Call, result: Result) -> Result:
        """Add the members that the revision requires of every result, and remove those it does not know."""
        ...


class RequestOutcome(Struct, frozen=True):
    """The encoded response; `code` is its JSON-RPC error code if it is an error."""

    body: bytes
    code: int | None = None
    retry_after: float | None = None
    scope_fault: Fault | None = None
    """The fault, if the call failed because the caller's token has no scope for it."""
    extra_headers: tuple[Header, ...] = ()
    record: Record | None = None
    """The record of the call; None if the failure could not be rendered."""

    @property
    def headers(self) -> tuple[Header, ...]:
        retry_after = retry_after_header(self.retry_after)
        return (*retry_after, *self.extra_headers) if self.extra_headers else retry_after


async def handle_request(inbound: InboundRequest, handler: Handler, era: Era) -> RequestOutcome:
    """Prepare the request, run `handler`, and encode the result or the failure.

    Raises nothing except `CancelledError`.
    """
    request, message = inbound.http_request, inbound.message
    route: Route | None = None
    params: Json = message.params
    input_response: InputResponse | None = None
    record = Record()
    try:
        route, params, input_response = era.prepare(inbound)
    except (Fault, ForeignError) as exc:
        handler = era.refusal_handler(exc)
    except Exception:
        log.exception("request preparation failed; the client gets an internal error")
        handler = era.refusal_handler(Fault(Kind.INTERNAL, "The gateway failed to carry out this request."))
    call = Call(
        id=inbound.correlation_id,
        caller=request.caller,
        method=message.method,
        params=params,
        client=inbound.client,
        wire=inbound.wire,
        record=record,
        route=route,
        endpoint=request.path,
        request_id=message.id,
        body_bytes=len(request.body),
        trace=inbound.trace,
        input_response=input_response,
        peer=request.peer,
        tools_view=request.headers.get(TOOLS_HEADER, ""),
    )
    try:
        return RequestOutcome(result_bytes(message.id, era.finalize(call, await handler(call))), record=record)
    except (Fault, ForeignError) as exc:
        # The frames of the exception and of its causes may refer to it: break the cycle, so that the memory is
        # released without a garbage collection.
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return _failure_outcome(call, exc, era.finalize)
    except Exception:
        log.exception("%s failed in the gateway; the client gets an internal error", call.method, extra=call.log_fields)
        fault = Fault(Kind.INTERNAL, "The gateway failed to carry out this request.")
        return _failure_outcome(call, fault, era.finalize)


def _failure_outcome(call: Call, reason: Refusal, finalize: Callable[[Call, Result], Result]) -> RequestOutcome:
    try:
        return _render_failure(call, reason, finalize)
    except Exception:
        # A module's `render_error` or its error details may fail; the client still gets a response.
        log.exception(
            "error of %s could not be rendered; the client gets a generic error", call.method, extra=call.log_fields
        )
        error = RpcError(rpc_code(Kind.INTERNAL, modern=call.client.modern), "The call failed.")
        return RequestOutcome(error_bytes(call.request_id, error), error.code)


def _render_failure(call: Call, reason: Refusal, finalize: Callable[[Call, Result], Result]) -> RequestOutcome:
    retry_after = reason.retry_after if isinstance(reason, Fault) else None
    scope_fault = (
        reason if isinstance(reason, Fault) and call.caller.token and reason.details.get("missing_scopes") else None
    )
    extra_headers = reason.headers if isinstance(reason, Fault) else ()
    rendered = render_error(reason, call)
    if isinstance(rendered, RpcError):
        body, code = error_bytes(call.request_id, rendered), rendered.code
    else:
        body, code = result_bytes(call.request_id, finalize(call, rendered)), None
    return RequestOutcome(body, code, retry_after, scope_fault, extra_headers, record=call.record)


class RequestRefusals:
    """Answers the refused requests of one era; `version` is assumed for clients that have not negotiated one."""

    def __init__(self, context: EndpointContext, version: str) -> None:
        self._context = context
        self._client = ClientProfile(version, {})

    async def refuse(
        self,
        request: McpHttpRequest,
        writer: ResponseWriter,
        status: int,
        reason: RpcError | Fault,
        *extra_headers: Header,
        id: str | int | None = None,
        method: str = OTHER_METHOD,
        correlation: Correlation | None = None,
    ) -> None:
        """Send the refusal; if the caller's rate limit is exhausted, send that fault instead."""
        call = self._call(request, method, id, correlation)
        refusal = reason if isinstance(reason, Fault) else ForeignError(reason.code, reason.message, reason.data)
        raised = await self._record(call, refusal)
        if raised is not refusal or isinstance(raised, Fault):
            assert isinstance(raised, Fault)
            # A refused request gets a JSON-RPC error with status 200; other messages can only get an HTTP status.
            status = 200 if id is not None else TABLE[raised.kind].http
            extra_headers = (*retry_after_header(raised.retry_after), *raised.headers)
            error = render_error(raised, call)
            assert isinstance(error, RpcError)
        else:
            assert isinstance(reason, RpcError)
            error = reason
        await writer.send(status, json_headers(call.id, *extra_headers), error_bytes(id, error))

    async def charge(self, request: McpHttpRequest, correlation: Correlation) -> Fault | None:
        """Charge a notification or response to the caller's rate limit; return the fault if the limit is exhausted."""
        try:
            await self._context.charge_handler(self._call(request, OTHER_METHOD, None, correlation))
        except Fault as fault:
            fault.__traceback__ = None
            return fault
        return None

    async def _record(self, call: Call, reason: Refusal) -> Refusal:
        """Charge, audit and trace the refusal; return `reason`, or the fault of an exhausted rate limit."""
        try:
            await self._context.make_refusal_handler(reason)(call)
        except (Fault, ForeignError) as exc:
            # Its frames refer to it: break the cycle, so that the memory is released without a garbage collection.
            exc.__traceback__ = exc.__cause__ = exc.__context__ = None
            return exc
        return reason

    def _call(
        self, request: McpHttpRequest, method: str, id: str | int | None, correlation: Correlation | None
    ) -> Call:
        correlation_id, trace = correlation or self._context.correlate(request.headers, None)
        return Call(
            id=correlation_id,
            caller=request.caller,
            method=method,
            params={},
            client=self._client,
            wire=_NULL_WIRE,
            record=Record(),
            endpoint=request.path,
            request_id=id,
            body_bytes=len(request.body),
            trace=trace,
            peer=request.peer,
        )
