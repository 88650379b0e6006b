"""The guarded client against a real server."""

import httpx
import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import create_client

from .peers import LOOPBACK, FakeResolver, peer


async def test_trusted_loopback_server_is_reachable() -> None:
    async with peer() as server, create_client(allow_private=LOOPBACK) as http:
        assert (await http.get(server.url)).text == "ok"
        assert (await http.post(server.url, json={"a": 1}, headers={"Connection": "close"})).status_code == 200
    assert server.connections == 1
    assert b"accept-encoding: identity\r\n" in server.request_heads[0].lower()


async def test_threat_13_loopback_server_is_denied_unless_trusted() -> None:
    async with peer() as server, create_client(resolver=FakeResolver(["127.0.0.1"])) as http:
        for url in (server.url, "https://localhost/", f"https://127.0.0.1:{server.port}/", "https://inside.example/"):
            with pytest.raises(Fault) as caught:
                await http.get(url)
            assert caught.value.kind is Kind.DENIED
    assert server.connections == 0


def _redirect(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_threat_13_redirect_is_not_followed_even_when_requested(status: int) -> None:
    reply = _redirect(status, "http://169.254.169.254/latest/meta-data/")
    async with peer(reply) as server, create_client(allow_private=True, timeout=5) as http:
        response = await http.get(server.url, follow_redirects=True)
        assert (response.status_code, response.history) == (status, [])
    assert len(server.request_heads) == 1


@pytest.mark.parametrize("location", ["https://[::1", "https://xn--a/", "https://a:b/"])
async def test_invalid_redirect_is_unavailable(location: str) -> None:
    async with peer(_redirect(302, location)) as server, create_client(allow_private=LOOPBACK) as http:
        with pytest.raises(Fault) as caught:
            await http.get(server.url)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_threat_13_all_request_methods_validate_the_url() -> None:
    async with create_client() as http:
        with pytest.raises(Fault, match="user name"):
            await http.get(httpx.URL("https://user:secret@example.com/"))
        with pytest.raises(Fault, match="user name"):
            await http.send(httpx.Request("GET", "https://user:secret@example.com/"))
        with pytest.raises(Fault, match="plain ASCII"):
            await http.post("https://127。0。0。1/")
        with pytest.raises(Fault, match="public internet"):
            await http.send(httpx.Request("GET", "https://127。0。0。1/"))
        with pytest.raises(Fault, match="only be reached by https"):
            async with http.stream("GET", "http://example.com/"):
                raise AssertionError("the request was sent")


async def test_threat_13_headers_and_extensions_cannot_set_another_host() -> None:
    async with peer() as server, create_client(allow_private=LOOPBACK) as http:
        extensions = {"target": b"http://evil.example/", "sni_hostname": "evil.example"}
        await http.get(server.url, headers={"Host": "evil.example"}, extensions=extensions)
    assert server.request_heads[0].startswith(b"GET / HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{server.port}\r\n".encode() in server.request_heads[0].lower()
    assert b"evil" not in server.request_heads[0]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_threat_13_proxy_of_the_environment_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    async with peer() as server, peer() as proxy:
        monkeypatch.setenv(name, proxy.url)
        async with create_client(allow_private=LOOPBACK) as http:
            await http.get(server.url)
    assert (server.connections, proxy.connections) == (1, 0)


async def test_cookies_are_not_stored() -> None:
    reply = b"HTTP/1.1 200 OK\r\nSet-Cookie: name=value\r\nContent-Length: 0\r\n\r\n"
    async with peer(reply) as server, create_client(allow_private=LOOPBACK) as http:
        await http.get(server.url)
        await http.get(server.url)
    assert b"cookie" not in server.request_heads[1].lower()
