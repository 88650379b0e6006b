"""The egress proxy and private certificate authorities, with a real proxy and a real TLS server."""

from base64 import b64encode
from pathlib import Path

import httpx
import pytest

from gateway.errors import Fault, Kind
from gateway.outbound import OutboundRoute, OutboundTarget, Proxy, create_client
from gateway.outbound.route import parse_connect_response
from gateway.upstream.http.pool import ConnectionPool
from tests.peers.egress_proxy import EgressProxy
from tests.peers.private_ca import PrivateCa

from .peers import PUBLIC, FakeResolver, peer

HOST = "mcp.corp.example"


class _Unresolvable:
    async def __call__(self, host: str, port: int) -> list[str]:
        raise OSError("no such host")


async def test_request_goes_through_the_proxy_by_name_and_tls_is_verified_with_the_private_authority(
    tmp_path: Path,
) -> None:
    ca = PrivateCa(tmp_path)
    async with EgressProxy().running() as proxy, peer(tls=ca.server_context(HOST)) as server:
        route = OutboundRoute(Proxy.parse(proxy.url), ca_file=ca.file)
        trusted = frozenset({HOST})
        async with create_client(allow_private=trusted, route=route, resolver=_Unresolvable()) as http:
            assert (await http.get(f"https://{HOST}:{server.port}/")).text == "ok"
        assert proxy.tunnels == [(f"{HOST}:{server.port}", 200)]


async def test_server_of_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    ca = PrivateCa(tmp_path)
    async with EgressProxy().running() as proxy, peer(tls=ca.server_context(HOST)) as server:
        route = OutboundRoute(Proxy.parse(proxy.url))
        async with create_client(allow_private=frozenset({HOST}), route=route, resolver=_Unresolvable()) as http:
            with pytest.raises(Fault, match="cannot be reached"):
                await http.get(f"https://{HOST}:{server.port}/")


async def test_pool_of_a_backend_opens_tunnels_too(tmp_path: Path) -> None:
    ca = PrivateCa(tmp_path)
    async with EgressProxy().running() as proxy, peer(tls=ca.server_context(HOST)) as server:
        route = OutboundRoute(Proxy.parse(proxy.url))
        target = OutboundTarget("https", HOST, server.port, "/", True)
        pool = ConnectionPool("far", target, max_bytes=1000, tls=route.tls(ca.file), route=route)
        leased = await pool.exchange(f"GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode())
        assert leased.response.body == b"ok"
        leased.release()
        pool.close()
        assert proxy.tunnels == [(f"{HOST}:{server.port}", 200)]


async def test_proxy_credentials_are_sent_and_shown_in_no_repr() -> None:
    login = b64encode(b"us er:p@ss").decode()
    async with EgressProxy(login).running() as proxy, peer() as server:
        for url, status in ((f"http://us%20er:p%40ss@127.0.0.1:{proxy.port}", 200), (proxy.url, 407)):
            route = OutboundRoute(Proxy.parse(url))
            assert "p@ss" not in repr(route)
            async with create_client(allow_private=frozenset({HOST}), route=route, resolver=_Unresolvable()) as http:
                if status == 200:
                    assert (await http.get(f"http://{HOST}:{server.port}/")).text == "ok"
                else:
                    with pytest.raises(Fault, match="cannot be reached"):
                        await http.get(f"http://{HOST}:{server.port}/")
        assert [each[1] for each in proxy.tunnels] == [200, 407]


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("rebind.example.org", ["10.0.0.7"]),
        ("mixed.example.org", [PUBLIC, "169.254.169.254"]),
        ("metadata.internal", None),
        ("intranet", None),
        ("169.254.169.254", None),
        ("[::1]", None),
    ],
)
async def test_threat_13_proxy_is_not_asked_for_private_hosts(host: str, addresses: list[str] | None) -> None:
    async with EgressProxy().running() as proxy:
        resolver = FakeResolver(addresses) if addresses else _Unresolvable()
        route = OutboundRoute(Proxy.parse(proxy.url))
        async with create_client(route=route, resolver=resolver) as http:
            with pytest.raises(Fault) as caught:
                await http.get(f"https://{host}/")
        assert caught.value.kind is Kind.DENIED
        assert proxy.tunnels == []


@pytest.mark.parametrize(
    ("host", "direct"),
    [
        ("mcp.example.org", True),
        ("example.org", True),
        ("notexample.org", False),
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("exact.test", True),
        ("localhost", True),
        ("127.0.0.1", True),
        ("elsewhere.test", False),
    ],
)
def test_hosts_of_no_proxy_are_reached_directly(host: str, direct: bool) -> None:
    route = OutboundRoute(Proxy("proxy", 3128), ("example.org", "10.0.0.0/8", "exact.test"))
    assert (route.proxy_for(host) is None) is direct


def test_star_in_no_proxy_disables_the_proxy() -> None:
    assert OutboundRoute(Proxy("proxy", 3128), ("*",)).proxy_for("example.org") is None


@pytest.mark.parametrize("url", ["https://proxy:3128", "socks5://proxy", "proxy:3128", "http://", "http://p/x", ""])
def test_url_that_is_no_http_proxy_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="expected an address"):
        Proxy.parse(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nsmuggled",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"x" * 20_000,
    ],
)
def test_answer_that_opens_no_tunnel_is_an_error(answer: bytes) -> None:
    with pytest.raises(ConnectionError):
        parse_connect_response(answer)


def test_incomplete_answer_is_waited_for() -> None:
    assert parse_connect_response(b"HTTP/1.1 200 OK\r\n") is False
    assert parse_connect_response(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n") is True


def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://evil.example:1")
    assert OutboundRoute().proxy_for("example.org") is None
    assert isinstance(create_client(), httpx.AsyncClient)
