"""Malformed responses of a server."""

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.upstream.conversation import NullMessageHandler
from gateway.upstream.http.connection import UpstreamResponse
from gateway.upstream.http.responses import parse_result, read_result

UNREADABLE = {
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"result":{"text":"\xff"}}',
    "a key that is not UTF-8": b'{"\xff":1}',
    "very deep": b'{"id":1,"result":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "deep and cut off": b'{"a":' + b"[" * 50_000,
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "number out of range": b'{"a":1e999999}',
    "no object": b"[1]",
    "no JSON": b"<html>",
    "nothing": b"",
}
each_unreadable = pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())


class FakeStream(UpstreamResponse):
    def __init__(self, raw: bytes) -> None:
        super().__init__(200, {}, None)
        self._chunks = [b"data: " + raw + b"\n\n", b""]

    async def read(self) -> bytes:
        return self._chunks.pop(0)


async def _unexpected_reply(answer: Json) -> None:
    raise AssertionError


@each_unreadable
async def test_malformed_response_is_an_unavailable_fault(raw: bytes) -> None:
    with pytest.raises(Fault) as error:
        parse_result("far", UpstreamResponse(200, {}, raw), 1)
    assert error.value.kind is Kind.UNAVAILABLE
    with pytest.raises(Fault) as error:
        await read_result("far", FakeStream(raw), 1, NullMessageHandler(), _unexpected_reply, 1_000_000)
    assert error.value.kind is Kind.UNAVAILABLE


@each_unreadable
def test_status_determines_the_fault_of_a_malformed_body(raw: bytes) -> None:
    with pytest.raises(Fault) as error:
        parse_result("far", UpstreamResponse(429, {"retry-after": "7"}, raw), 1)
    assert (error.value.kind, error.value.retry_after) == (Kind.RATE_LIMITED, 7.0)
