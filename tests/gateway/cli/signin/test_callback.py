"""Where the browser comes back to: for one state only, and for nothing else."""

import asyncio
import socket

import httpx
import pytest

from gateway.cli.signin.callback import CallbackResult, listening


async def test_only_the_return_that_is_waited_for_is_taken() -> None:
    async with listening((0,)) as callback, httpx.AsyncClient(trust_env=False) as http:
        assert callback.address.startswith("http://127.0.0.1:")
        early = await http.get(callback.address, params={"state": "", "code": "c"})
        callback.expect("mine")
        waiting = asyncio.ensure_future(callback.returned())
        answers = [
            await http.get(callback.address, params={"state": "another's", "code": "c"}),
            await http.get(callback.address, params={"state": "mine"}),
            await http.get(f"{callback.address}?state=mine&code=a&code=b"),
            await http.get(callback.address.replace("/callback", "/favicon.ico")),
            await http.post(callback.address, params={"state": "mine", "code": "c"}),
        ]
        assert [answer.status_code for answer in (early, *answers)] == [400, 400, 400, 400, 404, 404]
        assert not waiting.done()
        taken = await http.get(callback.address, params={"state": "mine", "code": "c", "iss": "https://a.example"})
        assert taken.status_code == 200
        assert taken.headers["content-security-policy"] == "default-src 'none'"
        assert await waiting == CallbackResult("mine", "c", "", "https://a.example")


async def test_it_listens_where_it_did_before_and_elsewhere_if_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken: int = other.getsockname()[1]
        async with listening((taken, 0)) as callback:
            assert str(taken) not in callback.address
        with pytest.raises(OSError, match="address already in use"):
            async with listening((taken,)):
                pass
    async with listening((taken, 0)) as callback:
        assert callback.address == f"http://127.0.0.1:{taken}/callback"


async def test_a_head_without_end_is_hung_up_on() -> None:
    async with listening((0,)) as callback:
        port = httpx.URL(callback.address).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /callback?" + b"x" * 100_000)
        try:
            async with asyncio.timeout(30):
                assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
