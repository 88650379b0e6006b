"""Reading request bodies: limits and encodings."""

import gzip
from time import monotonic

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.edge.error_response import send_fault
from gateway.edge.request_parsing import EdgeLimits, fold_headers, read_body
from gateway.errors import Fault, Kind
from tests.gateway.edge.asgi import Headers
from tests.gateway.edge.peer import HOST, Peer, Serve, post


def parts(*bodies: bytes, then: Message | None = None) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
    if then is None:
        messages[-1]["more_body"] = False
    else:
        messages.append(then)
    pending = iter(messages)

    async def receive() -> Message:
        return next(pending)

    return receive


async def rejection(headers: Headers, receive: Receive, limit: int = 10) -> Fault:
    with pytest.raises(Fault) as caught:
        await read_body(fold_headers(headers), receive, limit)
    return caught.value


async def test_body_of_exactly_the_limit_is_read_in_one_or_several_chunks() -> None:
    assert await read_body({}, parts(b"0123456789"), 10) == b"0123456789"
    assert await read_body({}, parts(b"01234", b"", b"56789"), 10) == b"0123456789"


async def test_content_length_above_the_limit_is_rejected_before_reading() -> None:
    async def never() -> Message:
        raise AssertionError("the body was read")

    fault = await rejection([(b"content-length", b"11")], never)
    assert (fault.kind, fault.details) == (Kind.TOO_LARGE, {"payload_bytes": 11, "max_bytes": 10})


async def test_body_without_length_is_rejected_as_soon_as_it_exceeds_the_limit() -> None:
    unread = {"type": "http.request", "body": b"never", "more_body": True}
    receive = parts(b"012345", b"67890", then=unread)
    fault = await rejection([], receive)
    assert (fault.kind, fault.details) == (Kind.TOO_LARGE, {"max_bytes": 10})
    assert await receive() is unread


async def test_disconnect_during_the_body_raises_cancelled() -> None:
    fault = await rejection([], parts(b"01", then={"type": "http.disconnect"}))
    assert fault.kind is Kind.CANCELLED


@pytest.mark.parametrize("encoding", [b"gzip", b"GZIP", b"deflate", b"br", b"zstd", b"gzip, identity"])
async def test_threat_33_encoded_body_is_rejected_with_415(encoding: bytes) -> None:
    fault = await rejection([(b"content-encoding", encoding)], parts(b""))
    assert (fault.kind, fault.details["http_status"]) == (Kind.UNSUPPORTED, 415)


async def test_identity_encoding_is_accepted() -> None:
    headers = fold_headers([(b"content-encoding", b" Identity ")])
    assert await read_body(headers, parts(b"x"), 10) == b"x"


async def reading_app(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await read_body(fold_headers(scope["headers"]), receive, 4 << 20)
    except Fault as fault:
        await send_fault(send, fault.details.get("http_status", 413), fault)


async def test_threat_33_gzip_bomb_is_rejected_in_milliseconds(serve: Serve) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    peer = await Peer.connect(serve(reading_app, EdgeLimits()).port)
    await peer.send_bytes(post(bomb[:1000], b"Content-Encoding: gzip"))
    await peer.read_response()
    started = monotonic()
    assert (await peer.request(post(bomb, b"Content-Encoding: gzip"))).status == 415
    assert monotonic() - started < 0.25
    peer.close()


async def test_threat_23_body_above_the_limit_is_rejected_in_milliseconds_with_the_limit(serve: Serve) -> None:
    server = serve(reading_app, EdgeLimits())
    for head in (b"Content-Length: 5242880", b"Transfer-Encoding: chunked"):
        peer = await Peer.connect(server.port)
        started = monotonic()
        await peer.send_bytes(b"POST / HTTP/1.1\r\n" + HOST + head + b"\r\n\r\n")
        if b"chunked" in head:
            await peer.drip_parts(b"100000\r\n" + b"[" * (1 << 20) + b"\r\n", 5)
        response = await peer.read_response()
        assert (response.status, response.error["max_bytes"]) == (413, 4 << 20)
        assert monotonic() - started < 1
        peer.close()
