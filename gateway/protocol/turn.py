"""One request and its answer, in either era: prepared, walked, and dressed when it fails."""

import logging
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from gateway.catalogue.view import View
from gateway.contract import (
    Call,
    ClientProfile,
    Handler,
    InputResponse,
    Json,
    McpHttpRequest,
    Record,
    Result,
    Route,
    Wire,
)
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.answer import Header, error_bytes, result_bytes, retry_header
from gateway.protocol.faults import RpcError, dress, number
from gateway.protocol.floor import Refusal
from gateway.protocol.message import Message

log = logging.getLogger("gatehouse.protocol")

Prepared = tuple[Route | None, Json, InputResponse | None]
"""Where the request leads, its params as the backend should see them, and the answer it brings, if it brings one."""


class Turn(Struct, frozen=True):
    """A request as it came, and the client it came from."""

    inbound: McpHttpRequest
    view: View
    asked: Message
    client: ClientProfile
    wire: Wire
    correlation_id: str
    trace: dict[str, str]


class Manner(Protocol):
    """How an era does it."""

    def prepared(self, turn: Turn) -> Prepared:
        """Raises `Fault` or `ForeignError` for what is not even worth carrying out."""
        ...

    def refused(self, reason: Refusal) -> Handler:
        """The path of a request that could not be prepared: it is charged, audited and told as well."""
        ...

    def finished(self, call: Call, result: Result) -> Result:
        """With what the era's revision requires of every result."""
        ...


class Outcome(Struct, frozen=True):
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


async def handle_request(turn: Turn, end: Handler, manner: Manner) -> Outcome:
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
        return Outcome(result_bytes(asked.id, manner.finished(call, await end(call))), record=record)
    except (Fault, ForeignError) as exc:
        # Its frames, and those of its causes, may hold it, as `refused` does: all would stay until the collector comes.
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return _failed(call, exc, manner.finished)
    except Exception:
        log.exception("%s failed in the gateway", call.method, extra=call.tags)
        return _failed(call, Fault(Kind.INTERNAL, "The gateway failed to carry out this request."), manner.finished)


def _failed(call: Call, exc: Fault | ForeignError, finish: Callable[[Call, Result], Result]) -> Outcome:
    try:
        return _dressed(call, exc, finish)
    except Exception:
        # A module's own dress, or details of its own, may not keep a client from being answered.
        log.exception("the failure of %s could not be told as it was", call.method, extra=call.tags)
        plain = RpcError(number(Kind.INTERNAL, modern=call.client.modern), "The call failed.")
        return Outcome(error_bytes(call.request_id, plain), plain.code)


def _dressed(call: Call, exc: Fault | ForeignError, finish: Callable[[Call, Result], Result]) -> Outcome:
    retry_after = exc.retry_after if isinstance(exc, Fault) else None
    lacking = exc if isinstance(exc, Fault) and call.caller.token and exc.details.get("missing_scopes") else None
    more = exc.headers if isinstance(exc, Fault) else ()
    answer = dress(exc, call)
    if isinstance(answer, RpcError):
        body, code = error_bytes(call.request_id, answer), answer.code
    else:
        body, code = result_bytes(call.request_id, finish(call, answer)), None
    return Outcome(body, code, retry_after, lacking, more, record=call.record)
