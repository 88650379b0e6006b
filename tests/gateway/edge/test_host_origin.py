"""Host and Origin on every route."""

import pytest

from gateway.edge.host_origin import HostOriginGuard, default_allow_lists
from gateway.edge.request_parsing import EdgeLimits
from tests.gateway.edge.asgi import AsgiResponse, CountingApp, Headers, call, scope_of
from tests.gateway.edge.peer import Peer, Serve

HOSTS = ["localhost:*", "127.0.0.1:8080", "[::1]:*", "gw.example.com", "*.tenants.example.com"]
ORIGINS = ["http://localhost:*", "https://app.example.com", "https://*.tenants.example.com"]


async def send_request(headers: Headers, **where: str) -> tuple[AsgiResponse, int]:
    app = CountingApp()
    response = await call(HostOriginGuard(app, HOSTS, ORIGINS, ["/healthz"]), scope_of(headers, **where))
    return response, app.calls


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"LocalHost:3000",
        b"localhost.:3000",
        b"127.0.0.1:8080",
        b"[::1]:8080",
        b"[0:0:0:0:0:0:0:1]",
        b"gw.example.com",
        b"GW.example.com.:443",
        b" gw.example.com ",
        b"gw.example.com:",
        b"acme.tenants.example.com",
        b"a.b.tenants.example.com",
    ],
)
async def test_threat_11_allowed_host_passes(host: bytes) -> None:
    response, reached = await send_request([(b"host", host)])
    assert (response.status, reached) == (200, 1)


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"evil.example",
        b"evil.localhost",
        b"localhost.evil.example",
        b"127.0.0.1",
        b"127.0.0.1:8081",
        b"2130706433:8080",
        b"gw.example.com:8443",
        b"gw.example.com..",
        b"tenants.example.com",
        b"xtenants.example.com",
        b".tenants.example.com",
        b"[::2]",
        b"[::1",
        b"::1",
        b"[::1]evil",
        b"*.tenants.example.com",
        b"localhost:*",
        b"localhost:99999999",
        b"localhost,localhost",
        b"\xff",
    ],
)
async def test_threat_11_any_other_host_gets_421_before_the_app(host: bytes) -> None:
    response, reached = await send_request([(b"host", host)])
    assert (response.status, response.error["kind"], reached) == (421, "denied", 0)


@pytest.mark.parametrize("host", [b"localhost/mcp", b"localhost?x", b"localhost#x", b"user@localhost", b"a/b?c#d"])
async def test_threat_12_malformed_host_gets_421(host: bytes) -> None:
    response, reached = await send_request([(b"host", host)])
    assert (response.status, reached) == (421, 0)


async def test_threat_11_missing_or_duplicate_host_gets_421() -> None:
    for headers in ([], [(b"host", b"localhost"), (b"host", b"localhost")]):
        response, reached = await send_request(headers)
        assert (response.status, reached) == (421, 0)


async def test_threat_11_duplicate_host_is_rejected_by_the_parser(serve: Serve) -> None:
    app = CountingApp()
    peer = await Peer.connect(serve(HostOriginGuard(app, ["localhost"], []), EdgeLimits()).port)
    response = await peer.request(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert (response.status, app.calls) == (400, 0)
    peer.close()


async def test_threat_11_dns_rebinding_gets_421_and_the_connection_stays_open(serve: Serve) -> None:
    peer = await Peer.connect(serve(HostOriginGuard(CountingApp(), ["localhost"], []), EdgeLimits()).port)
    rejection = b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 3\r\n\r\nabc"
    assert (await peer.request(rejection)).status == 421
    assert (await peer.request(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 200
    peer.close()


async def test_health_routes_accept_any_host_but_not_any_origin() -> None:
    response, _ = await send_request([(b"host", b"10.0.0.7")], path="/healthz")
    assert response.status == 200
    response, _ = await send_request([(b"host", b"10.0.0.7"), (b"origin", b"https://evil.example")], path="/healthz")
    assert response.status == 403


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost",
        b"http://LOCALHOST:6274",
        b"https://app.example.com",
        b"https://app.example.com:443",
        b"https://acme.tenants.example.com",
    ],
)
async def test_threat_11_allowed_origin_passes_with_cors_headers(origin: bytes) -> None:
    response, reached = await send_request([(b"host", b"localhost"), (b"origin", origin)])
    assert (response.status, reached) == (200, 1)
    assert response.headers["access-control-allow-origin"] == origin.decode()
    assert "mcp-session-id" in response.headers["access-control-expose-headers"]
    assert response.headers["vary"] == "Origin"
    assert response.headers["content-length"] == "0"


@pytest.mark.parametrize(
    "origin",
    [
        b"null",
        b"",
        b"https://evil.example",
        b"http://evil.localhost",
        b"http://localhost.evil.example",
        b"https://localhost",
        b"http://app.example.com",
        b"https://app.example.com:8443",
        b"https://app.example.com/",
        b"https://app.example.com@evil.example",
        b"https://tenants.example.com",
        b"file://",
    ],
)
async def test_threat_11_any_other_origin_gets_403_before_the_app(origin: bytes) -> None:
    response, reached = await send_request([(b"host", b"localhost"), (b"origin", origin)])
    assert (response.status, response.error["kind"], reached) == (403, "denied", 0)
    assert "access-control-allow-origin" not in response.headers


async def test_threat_11_two_origins_get_403() -> None:
    allowed = (b"origin", b"http://localhost")
    response, reached = await send_request([(b"host", b"localhost"), allowed, allowed])
    assert (response.status, reached) == (403, 0)


async def test_threat_11_websockets_are_closed_with_1008() -> None:
    rejection: list[Headers] = [[(b"host", b"evil.example")], [(b"host", b"localhost"), (b"origin", b"null")]]
    for headers in rejection:
        response, reached = await send_request(headers, kind="websocket")
        assert (response.messages[0]["type"], response.messages[0]["code"], reached) == ("websocket.close", 1008, 0)
    _, reached = await send_request([(b"host", b"localhost"), (b"origin", b"http://localhost")], kind="websocket")
    assert reached == 1


async def test_null_origin_passes_if_allowed() -> None:
    app = CountingApp()
    guard = HostOriginGuard(app, ["localhost"], ["null"])
    await call(guard, scope_of([(b"host", b"localhost"), (b"origin", b"null")]))
    assert app.calls == 1


async def test_preflight_is_answered_without_the_app() -> None:
    response, reached = await send_request(
        [
            (b"host", b"localhost"),
            (b"origin", b"http://localhost:6274"),
            (b"access-control-request-method", b"POST"),
            (b"access-control-request-headers", b"content-type, Mcp-Param-City, x-evil, mcp-param-a b"),
        ],
        method="OPTIONS",
    )
    assert (response.status, reached) == (204, 0)
    assert response.headers["access-control-allow-origin"] == "http://localhost:6274"
    assert response.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert response.headers["access-control-max-age"] == "600"
    allowed = response.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "mcp-session-id", "last-event-id", "mcp-param-city"} <= set(allowed)
    assert not {"x-evil", "mcp-param-a b"} & set(allowed)


async def test_options_request_without_preflight_headers_reaches_the_app() -> None:
    _, reached = await send_request([(b"host", b"localhost")], method="OPTIONS")
    assert reached == 1


async def test_cors_header_set_by_a_route_is_kept() -> None:
    async def open_to_all(_scope: object, _receive: object, send: object) -> None:
        headers = [(b"access-control-allow-origin", b"*")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})  # type: ignore[operator]

    guard = HostOriginGuard(open_to_all, ["localhost"], ["http://localhost"])
    response = await call(guard, scope_of([(b"host", b"localhost"), (b"origin", b"http://localhost")]))
    assert response.messages[0]["headers"] == [(b"access-control-allow-origin", b"*")]


async def test_many_distinct_hosts_do_not_change_the_decision() -> None:
    guard = HostOriginGuard(CountingApp(), HOSTS, ORIGINS)
    for number in range(3000):
        assert (await call(guard, scope_of([(b"host", b"h%d.evil.example" % number)]))).status == 421
    assert (await call(guard, scope_of([(b"host", b"gw.example.com")]))).status == 200


@pytest.mark.parametrize("entry", ["", "*", "http://a", "a b", "a/b", "user@a", "*.", "a:b"])
def test_invalid_host_entry_is_rejected_at_start(entry: str) -> None:
    with pytest.raises(ValueError, match="not a host"):
        HostOriginGuard(CountingApp(), [entry], [])


@pytest.mark.parametrize("entry", ["", "*", "a.example", "https://", "https://a/b", "https://*"])
def test_invalid_origin_entry_is_rejected_at_start(entry: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        HostOriginGuard(CountingApp(), [], [entry])


def test_default_hosts_on_loopback_are_loopback_and_the_public_url() -> None:
    hosts, origins = default_allow_lists("127.0.0.1", 8080, "http://127.0.0.1:8080")
    assert {"127.0.0.1:*", "localhost:*", "[::1]:*", "127.0.0.1:8080"} == set(hosts)
    assert {"http://localhost:*", "http://[::1]:*", "http://127.0.0.1:*"} < set(origins)
    HostOriginGuard(CountingApp(), hosts, origins)


def test_default_hosts_on_other_interfaces_are_the_public_url_and_the_bound_address() -> None:
    hosts, origins = default_allow_lists("0.0.0.0", 8080, "https://gw.example.com")
    assert (hosts, origins) == (("gw.example.com",), ("https://gw.example.com",))
    hosts, origins = default_allow_lists("fd00::1", 8080, "https://gw.example.com:8443")
    assert (hosts, origins) == (("gw.example.com:8443", "[fd00::1]:8080"), ("https://gw.example.com:8443",))
    HostOriginGuard(CountingApp(), hosts, origins)
