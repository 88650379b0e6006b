"""One request and its answer, in either era: prepared, walked, and dressed when it fails.

What the door refuses before it is a call: charged, audited and logged, as every other refusal is.
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
from gateway.error_rendering import number
from gateway.errors import TABLE, Fault, ForeignError, Kind
from gateway.protocol.context import EndpointContext, Refusal
from gateway.protocol.messages import Message
from gateway.protocol.responses import Header, RpcError, dress, error_bytes, headers, result_bytes, retry_header

log = logging.getLogger("gatehouse.protocol")

Prepared = tuple[Route | None, Json, InputResponse | None]

"""Where the request leads, its params as the backend should see them, and the answer it brings, if it brings one."""


class InboundRequest(Struct, frozen=True):
    """A request as it came, and the client it came from."""

    inbound: McpHttpRequest
    view: View
    asked: Message
    client: ClientProfile
    wire: Wire
    correlation_id: str
    trace: dict[str, str]


class Era(Protocol):
    """How an era does it."""

    def prepared(self, turn: InboundRequest) -> Prepared:
        """Raises `Fault` or `ForeignError` for what is not even worth carrying out."""
        ...

    def refused(self, reason: Refusal) -> Handler:
        """The path of a request that could not be prepared: it is charged, audited and told as well."""
        ...

    def finished(self, call: Call, result: Result) -> Result:
        """With what the era's revision requires of every result."""
        ...


class RequestOutcome(Struct, frozen=True):
    """The encoded answer; `code` is its JSON-RPC error code, if it is an error."""

    body: bytes
    code: int | None = None
    retry_after: float | None = None
    lacking: Fault | None = None
    """Why it failed, when it did for want of a scope that a token could be given."""
    more: tuple[Header, ...] = ()
    record: Record | None = None
    """Of the call that it answers, if it came so far."""

    @property
    def headers(self) -> tuple[Header, ...]:
        return (*retry_header(self.retry_after), *self.more) if self.more else retry_header(self.retry_after)


async def handle_request(turn: InboundRequest, end: Handler, manner: Era) -> RequestOutcome:
    """Never raises but for cancellation: whatever goes wrong becomes an answer of the one error model."""
    inbound, asked = turn.inbound, turn.asked
    route: Route | None = None
    params: Json = asked.params
    answered: InputResponse | None = None
    record = Record()
    try:
        route, params, answered = manner.prepared(turn)
    except (Fault, ForeignError) as exc:
        end = manner.refused(exc)
    except Exception:
        log.exception("a request could not be prepared")
        end = manner.refused(Fault(Kind.INTERNAL, "The gateway failed to carry out this request."))
    call = Call(
        turn.correlation_id,
        inbound.caller,
        asked.method,
        params,
        turn.client,
        turn.wire,
        record,
        route,
        inbound.path,
        asked.id,
        len(inbound.body),
        turn.trace,
        answered,
        inbound.peer,
    )
    try:
        return RequestOutcome(result_bytes(asked.id, manner.finished(call, await end(call))), record=record)
    except (Fault, ForeignError) as exc:
        # Its frames, and those of its causes, may hold it, as `refused` does: all would stay until the collector comes.
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return _failed(call, exc, manner.finished)
    except Exception:
        log.exception("%s failed in the gateway", call.method, extra=call.tags)
        return _failed(call, Fault(Kind.INTERNAL, "The gateway failed to carry out this request."), manner.finished)


def _failed(call: Call, exc: Fault | ForeignError, finish: Callable[[Call, Result], Result]) -> RequestOutcome:
    try:
        return _dressed(call, exc, finish)
    except Exception:
        # A module's own dress, or details of its own, may not keep a client from being answered.
        log.exception("the failure of %s could not be told as it was", call.method, extra=call.tags)
        plain = RpcError(number(Kind.INTERNAL, modern=call.client.modern), "The call failed.")
        return RequestOutcome(error_bytes(call.request_id, plain), plain.code)


def _dressed(call: Call, exc: Fault | ForeignError, finish: Callable[[Call, Result], Result]) -> RequestOutcome:
    retry_after = exc.retry_after if isinstance(exc, Fault) else None
    lacking = exc if isinstance(exc, Fault) and call.caller.token and exc.details.get("missing_scopes") else None
    more = exc.headers if isinstance(exc, Fault) else ()
    answer = dress(exc, call)
    if isinstance(answer, RpcError):
        body, code = error_bytes(call.request_id, answer), answer.code
    else:
        body, code = result_bytes(call.request_id, finish(call, answer)), None
    return RequestOutcome(body, code, retry_after, lacking, more, record=call.record)


OTHER: Final = "_OTHER"

"""The method of what has none that this house knows: a client's own word would make a metric of its own."""

_NOBODY: Final = NullWire()

Correlation = tuple[str, Mapping[str, str]]

"""The correlation id and the trace context."""


class RequestRefusals:
    """Of one era, whose `version` stands for clients that have not said theirs."""

    def __init__(self, floor: EndpointContext, version: str) -> None:
        self._floor = floor
        self._client = ClientProfile(version, {})

    async def tell(
        self,
        inbound: McpHttpRequest,
        outlet: ResponseWriter,
        status: int,
        reason: RpcError | Fault,
        *more: Header,
        id: str | int | None = None,
        method: str = OTHER,
        correlation: Correlation | None = None,
    ) -> None:
        """Answer so; or, to a caller whose limit is spent, that it is."""
        call = self._call(inbound, method, id, correlation)
        told = reason if isinstance(reason, Fault) else ForeignError(reason.code, reason.message, reason.data)
        raised = await self._walk(call, told)
        if raised is not told or isinstance(raised, Fault):
            assert isinstance(raised, Fault)
            # A request is answered as any other that is refused; what is none can only be answered by a status.
            status = 200 if id is not None else TABLE[raised.kind].http
            more = (*retry_header(raised.retry_after), *raised.headers)
            error = dress(raised, call)
            assert isinstance(error, RpcError)
        else:
            assert isinstance(reason, RpcError)
            error = reason
        await outlet.answer(status, headers(call.id, *more), error_bytes(id, error))

    async def charge(self, inbound: McpHttpRequest, correlation: Correlation) -> Fault | None:
        """Count a message that is no request, such as a notification; why it may not be sent, if so."""
        try:
            await self._floor.charged(self._call(inbound, OTHER, None, correlation))
        except Fault as fault:
            fault.__traceback__ = None
            return fault
        return None

    async def _walk(self, call: Call, reason: Refusal) -> Refusal:
        try:
            await self._floor.refused(reason)(call)
        except (Fault, ForeignError) as exc:
            # Its frames hold it: without this, all would stay until the collector comes.
            exc.__traceback__ = exc.__cause__ = exc.__context__ = None
            return exc
        return reason

    def _call(
        self, inbound: McpHttpRequest, method: str, id: str | int | None, correlation: Correlation | None
    ) -> Call:
        correlation_id, trace = correlation or self._floor.correlate(inbound.headers, None)
        return Call(
            correlation_id,
            inbound.caller,
            method,
            {},
            self._client,
            _NOBODY,
            Record(),
            endpoint=inbound.path,
            request_id=id,
            body_bytes=len(inbound.body),
            trace=trace,
            peer=inbound.peer,
        )
