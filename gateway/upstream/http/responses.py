"""From an HTTP answer to a JSON-RPC one, in either era: JSON or an event stream, and what a bare status means."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.sse import EventTooLarge, SseParser
from gateway.upstream.conversation import MessageHandler
from gateway.upstream.http.connection import UpstreamResponse

Reply = Callable[[Json], Awaitable[None]]
"""Posts our answer to a request of the server's."""

_NO_REQUEST: Final = -1
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class StreamInterrupted(Fault):
    """The stream ended before the answer came; with an event id it can be resumed, where the era knows how."""

    def __init__(self, name: str, last_id: str, retry: int | None) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} ended its stream without an answer.")
        self.last_id = last_id
        self.retry_ms = retry


async def read_answer(
    name: str, response: UpstreamResponse, id: int, talk: MessageHandler, reply: Reply, max_bytes: int
) -> Json:
    """The result of request `id`. Raises `ForeignError` with the server's own error, `Fault` for anything less."""
    if response.body is not None:
        return whole_answer(name, response, id)
    parser = SseParser(max_bytes)
    while piece := await response.chunk():
        try:
            events = parser.feed(piece)
        except EventTooLarge as exc:
            raise Fault(Kind.TOO_LARGE, f"{name}'s answer exceeds the limit.") from exc
        for event in events:
            if event.data:
                message = _object(event.data, name)
                if _is_answer(message, id):
                    return _result(message, id, name)
                await _hear(message, talk, reply)
    raise StreamInterrupted(name, parser.last_id, parser.retry)


def whole_answer(name: str, response: UpstreamResponse, id: int) -> Json:
    """The same for an answer that came whole, and no stream."""
    assert response.body is not None
    return _result(_message(name, response, response.body), id, name)


async def hear_all(name: str, response: UpstreamResponse, talk: MessageHandler, reply: Reply, max_bytes: int) -> None:
    """Everything a stream says that answers no request, until it ends."""
    try:
        await read_answer(name, response, _NO_REQUEST, talk, reply, max_bytes)
    except StreamInterrupted:
        return


async def _hear(message: Json, talk: MessageHandler, reply: Reply) -> None:
    method = message.get("method")
    params: Any = message.get("params")
    known = cast("Json", params) if isinstance(params, dict) else {}
    if not isinstance(method, str):
        return  # an answer to somebody else's question: none of ours
    if "id" not in message:
        await talk.notified(method, known)
        return
    answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        answer["result"] = await talk.asked(method, known)
    except ForeignError as exc:
        answer["error"] = {"code": exc.code, "message": exc.message, "data": exc.data}
    await reply(answer)


def _message(name: str, response: UpstreamResponse, body: bytes) -> Json:
    try:
        return _object(body, name)
    except Fault:
        if response.status < 300:
            raise
        raise status_fault(name, response) from None


def status_fault(name: str, response: UpstreamResponse) -> Fault:
    """What an answer means that has a status and nothing to read."""
    status = response.status
    if status in (401, 403):
        return Fault(Kind.UNAVAILABLE, f"{name} refused the gateway's own credential.", retryable=False)
    if status == 429:
        after = response.headers.get("retry-after", "")
        wait = float(after) if after.isdigit() else 1.0
        return Fault(Kind.RATE_LIMITED, f"{name} asks for fewer calls.", retry_after=wait)
    return Fault(Kind.UNAVAILABLE, f"{name} answered with HTTP {status}.")


def _object(raw: bytes, name: str) -> Json:
    try:
        return _decode(raw)
    except msgspec.ValidationError as exc:
        raise Fault(Kind.UNAVAILABLE, f"{name} did not answer with a JSON-RPC message.") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Fault(Kind.UNAVAILABLE, f"{name} did not answer in JSON.") from exc


def _is_answer(message: Json, id: int) -> bool:
    return message.get("id") == id and "method" not in message


def _result(message: Json, id: int, name: str) -> Json:
    if type(result := message.get("result")) is dict and message.get("id") == id and "error" not in message:
        return result  # pyright: ignore[reportUnknownVariableType]  # of JSON
    error: Any = message.get("error")
    if isinstance(error, dict):
        known = cast("Json", error)
        code: Any = known.get("code")
        raise ForeignError(code if isinstance(code, int) else -32603, str(known.get("message", "")), known.get("data"))
    raise Fault(Kind.UNAVAILABLE, f"{name} answered something else than it was asked.")
