"""Reads JSON-RPC responses from HTTP responses, in either era: a JSON body, an event stream, or only a status."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.sse import EventTooLarge, SseParser
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.health import UpstreamCredentialRejected
from gateway.upstream.http.connection import UpstreamResponse

Reply = Callable[[Json], Awaitable[None]]
"""Posts the response to a request of the server."""

_NO_REQUEST: Final = -1
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class StreamInterrupted(Fault):
    """The stream ended before the response. With an event id it can be resumed in the handshake era."""

    def __init__(self, name: str, last_id: str, retry: int | None) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} ended its stream without a response.")
        self.last_id = last_id
        self.retry_ms = retry


async def read_result(
    name: str, response: UpstreamResponse, id: int, handler: MessageHandler, reply: Reply, max_bytes: int
) -> Json:
    """Return the result of request `id`. Raises `ForeignError` for an error of the server, `Fault` for all else."""
    if response.body is not None:
        return parse_result(name, response, id)
    parser = SseParser(max_bytes)
    while chunk := await response.read():
        try:
            events = parser.feed(chunk)
        except EventTooLarge as exc:
            raise Fault(Kind.TOO_LARGE, f"{name}'s response exceeds the limit.") from exc
        for event in events:
            if event.data:
                message = _decode_object(event.data, name)
                if _is_response_to(message, id):
                    return _result(message, id, name)
                await _dispatch(message, handler, reply)
    raise StreamInterrupted(name, parser.last_id, parser.retry)


def parse_result(name: str, response: UpstreamResponse, id: int) -> Json:
    """As `read_result`, for a response with a complete body."""
    assert response.body is not None
    return _result(_message(name, response, response.body), id, name)


async def read_notifications(
    name: str, response: UpstreamResponse, handler: MessageHandler, reply: Reply, max_bytes: int
) -> None:
    """Pass all messages of a stream to the handler until it ends."""
    try:
        await read_result(name, response, _NO_REQUEST, handler, reply, max_bytes)
    except StreamInterrupted:
        return


async def _dispatch(message: Json, handler: MessageHandler, reply: Reply) -> None:
    method = message.get("method")
    params: Any = message.get("params")
    known = cast("Json", params) if isinstance(params, dict) else {}
    if not isinstance(method, str):
        return  # a response to another request
    if "id" not in message:
        await handler.on_notification(method, known)
        return
    response: Json = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        response["result"] = await handler.on_request(method, known)
    except ForeignError as exc:
        response["error"] = {"code": exc.code, "message": exc.message, "data": exc.data}
    await reply(response)


def _message(name: str, response: UpstreamResponse, body: bytes) -> Json:
    try:
        return _decode_object(body, name)
    except Fault:
        if response.status < 300:
            raise
        raise status_fault(name, response) from None


def status_fault(name: str, response: UpstreamResponse) -> Fault:
    """The fault for a response with an error status and no JSON-RPC message."""
    status = response.status
    if status in (401, 403):
        return UpstreamCredentialRejected(name)
    if status == 429:
        after = response.headers.get("retry-after", "")
        wait = float(after) if after.isdigit() else 1.0
        return Fault(Kind.RATE_LIMITED, f"{name} rejected the call: too many requests.", retry_after=wait)
    return Fault(Kind.UNAVAILABLE, f"{name} responded with HTTP {status}.")


def _decode_object(raw: bytes, name: str) -> Json:
    try:
        return _decode(raw)
    except msgspec.ValidationError as exc:
        raise Fault(Kind.UNAVAILABLE, f"{name} did not respond with a JSON-RPC message.") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Fault(Kind.UNAVAILABLE, f"{name} did not respond with valid JSON.") from exc


def _is_response_to(message: Json, id: int) -> bool:
    return message.get("id") == id and "method" not in message


def _result(message: Json, id: int, name: str) -> Json:
    if type(result := message.get("result")) is dict and message.get("id") == id and "error" not in message:
        return result  # pyright: ignore[reportUnknownVariableType]  # of JSON
    error: Any = message.get("error")
    if isinstance(error, dict):
        known = cast("Json", error)
        code: Any = known.get("code")
        raise ForeignError(code if isinstance(code, int) else -32603, str(known.get("message", "")), known.get("data"))
    raise Fault(Kind.UNAVAILABLE, f"{name} sent a response that does not match the request.")
