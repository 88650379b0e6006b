"""What the door refuses before it is a call: charged, audited and logged, as every other refusal is."""

from collections.abc import Mapping
from typing import Final

from gateway.contract import Call, ClientProfile, McpHttpRequest, NullWire, Record, ResponseWriter
from gateway.errors import TABLE, Fault, ForeignError
from gateway.protocol.answer import Header, error_bytes, headers, retry_header
from gateway.protocol.faults import RpcError, dress
from gateway.protocol.floor import Floor, Refusal

OTHER: Final = "_OTHER"
"""The method of what has none that this house knows: a client's own word would make a metric of its own."""

_NOBODY: Final = NullWire()

Correlation = tuple[str, Mapping[str, str]]
"""The correlation id and the trace context."""


class Refusals:
    """Of one era, whose `version` stands for clients that have not said theirs."""

    def __init__(self, floor: Floor, version: str) -> None:
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
