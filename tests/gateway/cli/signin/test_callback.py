"""The OAuth callback server accepts one redirect with the expected state."""

import asyncio
import socket

import httpx
import pytest

from gateway.cli.signin.callback import CallbackResult, serve_callback


async def test_only_the_redirect_with_the_expected_state_is_accepted() -> None:
    async with serve_callback((0,)) as callback, httpx.AsyncClient(trust_env=False) as http:
        assert callback.url.startswith("http://127.0.0.1:")
        early = await http.get(callback.url, params={"state": "", "code": "c"})
        callback.expect("mine")
        waiting = asyncio.ensure_future(callback.wait())
        answers = [
            await http.get(callback.url, params={"state": "other", "code": "c"}),
            await http.get(callback.url, params={"state": "mine"}),
            await http.get(f"{callback.url}?state=mine&code=a&code=b"),
            await http.get(callback.url.replace("/callback", "/favicon.ico")),
            await http.post(callback.url, params={"state": "mine", "code": "c"}),
        ]
        assert [answer.status_code for answer in (early, *answers)] == [400, 400, 400, 400, 404, 404]
        assert not waiting.done()
        taken = await http.get(callback.url, params={"state": "mine", "code": "c", "iss": "https://a.example"})
        assert taken.status_code == 200
        assert taken.headers["content-security-policy"] == "default-src 'none'"
        assert await waiting == CallbackResult("mine", "c", "", "https://a.example")


async def test_preferred_port_is_used_unless_it_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken: int = other.getsockname()[1]
        async with serve_callback((taken, 0)) as callback:
            assert str(taken) not in callback.url
        with pytest.raises(OSError, match="address already in use"):
            async with serve_callback((taken,)):
                pass
    async with serve_callback((taken, 0)) as callback:
        assert callback.url == f"http://127.0.0.1:{taken}/callback"


async def test_oversized_request_head_closes_the_connection() -> None:
    async with serve_callback((0,)) as callback:
        port = httpx.URL(callback.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /callback?" + b"x" * 100_000)
        try:
            async with asyncio.timeout(30):
                assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
