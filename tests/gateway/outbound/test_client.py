"""What the client does at a real server, and what nobody can make it do."""

import httpx
import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import client

from .peers import LOOPBACK, Names, peer


async def test_a_vouched_loopback_server_is_reached() -> None:
    async with peer() as there, client(allow_private=LOOPBACK) as http:
        assert (await http.get(there.url)).text == "ok"
        assert (await http.post(there.url, json={"a": 1}, headers={"Connection": "close"})).status_code == 200
    assert there.connections == 1
    assert b"accept-encoding: identity\r\n" in there.heads[0].lower()


async def test_threat_13_a_loopback_server_is_not_reached_unless_vouched_for() -> None:
    async with peer() as there, client(resolver=Names(["127.0.0.1"])) as http:
        for url in (there.url, "https://localhost/", f"https://127.0.0.1:{there.port}/", "https://inside.example/"):
            with pytest.raises(Fault) as caught:
                await http.get(url)
            assert caught.value.kind is Kind.DENIED
    assert there.connections == 0


def _redirect(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Away\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_threat_13_a_redirect_to_metadata_is_not_followed_even_when_asked(status: int) -> None:
    reply = _redirect(status, "http://169.254.169.254/latest/meta-data/")
    async with peer(reply) as there, client(allow_private=True, timeout=5) as http:
        response = await http.get(there.url, follow_redirects=True)
        assert (response.status_code, response.history) == (status, [])
    assert len(there.heads) == 1


@pytest.mark.parametrize("location", ["https://[::1", "https://xn--a/", "https://a:b/"])
async def test_a_redirect_that_cannot_be_read_is_unavailable(location: str) -> None:
    async with peer(_redirect(302, location)) as there, client(allow_private=LOOPBACK) as http:
        with pytest.raises(Fault) as caught:
            await http.get(there.url)
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_threat_13_every_way_of_sending_is_judged() -> None:
    async with client() as http:
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
                raise AssertionError("it was sent")


async def test_threat_13_no_header_or_extension_can_name_another_host() -> None:
    async with peer() as there, client(allow_private=LOOPBACK) as http:
        extensions = {"target": b"http://evil.example/", "sni_hostname": "evil.example"}
        await http.get(there.url, headers={"Host": "evil.example"}, extensions=extensions)
    assert there.heads[0].startswith(b"GET / HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{there.port}\r\n".encode() in there.heads[0].lower()
    assert b"evil" not in there.heads[0]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_threat_13_a_proxy_in_the_environment_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    async with peer() as there, peer() as proxy:
        monkeypatch.setenv(name, proxy.url)
        async with client(allow_private=LOOPBACK) as http:
            await http.get(there.url)
    assert (there.connections, proxy.connections) == (1, 0)


async def test_cookies_are_not_kept() -> None:
    reply = b"HTTP/1.1 200 OK\r\nSet-Cookie: who=me\r\nContent-Length: 0\r\n\r\n"
    async with peer(reply) as there, client(allow_private=LOOPBACK) as http:
        await http.get(there.url)
        await http.get(there.url)
    assert b"cookie" not in there.heads[1].lower()
