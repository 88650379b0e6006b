"""What becomes of an answer that cannot be read."""

import pytest

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.upstream.conversation import NullMessageHandler
from gateway.upstream.http.connection import UpstreamResponse
from gateway.upstream.http.responses import read_answer, whole_answer

UNREADABLE = {
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"result":{"text":"\xff"}}',
    "a key that is not UTF-8": b'{"\xff":1}',
    "very deep": b'{"id":1,"result":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    "deep and cut off": b'{"a":' + b"[" * 50_000,
    "half a surrogate pair": b'{"a":"\\ud800"}',
    "a number beyond all": b'{"a":1e999999}',
    "no object": b"[1]",
    "no JSON": b"<html>",
    "nothing": b"",
}
each_unreadable = pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE.keys())


class Streamed(UpstreamResponse):
    def __init__(self, raw: bytes) -> None:
        super().__init__(200, {}, None)
        self._pieces = [b"data: " + raw + b"\n\n", b""]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0)


async def _no_reply(answer: Json) -> None:
    raise AssertionError


@each_unreadable
async def test_an_answer_that_cannot_be_read_is_the_servers_failure(raw: bytes) -> None:
    with pytest.raises(Fault) as failed:
        whole_answer("far", UpstreamResponse(200, {}, raw), 1)
    assert failed.value.kind is Kind.UNAVAILABLE
    with pytest.raises(Fault) as failed:
        await read_answer("far", Streamed(raw), 1, NullMessageHandler(), _no_reply, 1_000_000)
    assert failed.value.kind is Kind.UNAVAILABLE


@each_unreadable
def test_where_the_body_cannot_be_read_the_status_speaks(raw: bytes) -> None:
    with pytest.raises(Fault) as failed:
        whole_answer("far", UpstreamResponse(429, {"retry-after": "7"}, raw), 1)
    assert (failed.value.kind, failed.value.retry_after) == (Kind.RATE_LIMITED, 7.0)
