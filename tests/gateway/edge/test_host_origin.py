"""Host and Origin on every route."""

import pytest

from gateway.edge.host_origin import HostOriginGuard, defaults
from gateway.edge.request_limits import EdgeLimits
from tests.gateway.edge.asgi import Called, Headers, Sent, call, scope_of
from tests.gateway.edge.peer import Peer, Serve

HOSTS = ["localhost:*", "127.0.0.1:8080", "[::1]:*", "gw.example.com", "*.tenants.example.com"]
ORIGINS = ["http://localhost:*", "https://app.example.com", "https://*.tenants.example.com"]


async def ask(headers: Headers, **where: str) -> tuple[Sent, int]:
    app = Called()
    sent = await call(HostOriginGuard(app, HOSTS, ORIGINS, ["/healthz"]), scope_of(headers, **where))
    return sent, app.times


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
async def test_threat_11_a_host_on_the_list_passes(host: bytes) -> None:
    sent, reached = await ask([(b"host", host)])
    assert (sent.status, reached) == (200, 1)


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
    sent, reached = await ask([(b"host", host)])
    assert (sent.status, sent.error["kind"], reached) == (421, "denied", 0)


@pytest.mark.parametrize("host", [b"localhost/mcp", b"localhost?x", b"localhost#x", b"user@localhost", b"a/b?c#d"])
async def test_threat_12_a_host_with_more_than_a_host_in_it_gets_421(host: bytes) -> None:
    sent, reached = await ask([(b"host", host)])
    assert (sent.status, reached) == (421, 0)


async def test_threat_11_no_host_and_two_hosts_get_421() -> None:
    for headers in ([], [(b"host", b"localhost"), (b"host", b"localhost")]):
        sent, reached = await ask(headers)
        assert (sent.status, reached) == (421, 0)


async def test_threat_11_two_hosts_are_refused_by_the_parser(serve: Serve) -> None:
    app = Called()
    peer = await Peer.connect(serve(HostOriginGuard(app, ["localhost"], []), EdgeLimits()).port)
    answer = await peer.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert (answer.status, app.times) == (400, 0)
    peer.close()


async def test_threat_11_a_rebound_name_gets_421_over_a_socket_and_the_connection_goes_on(serve: Serve) -> None:
    peer = await Peer.connect(serve(HostOriginGuard(Called(), ["localhost"], []), EdgeLimits()).port)
    refused = b"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 3\r\n\r\nabc"
    assert (await peer.ask(refused)).status == 421
    assert (await peer.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")).status == 200
    peer.close()


async def test_health_is_served_to_any_host_but_not_to_any_origin() -> None:
    sent, _ = await ask([(b"host", b"10.0.0.7")], path="/healthz")
    assert sent.status == 200
    sent, _ = await ask([(b"host", b"10.0.0.7"), (b"origin", b"https://evil.example")], path="/healthz")
    assert sent.status == 403


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
async def test_threat_11_an_origin_on_the_list_passes_with_cors_headers(origin: bytes) -> None:
    sent, reached = await ask([(b"host", b"localhost"), (b"origin", origin)])
    assert (sent.status, reached) == (200, 1)
    assert sent.headers["access-control-allow-origin"] == origin.decode()
    assert "mcp-session-id" in sent.headers["access-control-expose-headers"]
    assert sent.headers["vary"] == "Origin"
    assert sent.headers["content-length"] == "0"


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
    sent, reached = await ask([(b"host", b"localhost"), (b"origin", origin)])
    assert (sent.status, sent.error["kind"], reached) == (403, "denied", 0)
    assert "access-control-allow-origin" not in sent.headers


async def test_threat_11_two_origins_get_403() -> None:
    good = (b"origin", b"http://localhost")
    sent, reached = await ask([(b"host", b"localhost"), good, good])
    assert (sent.status, reached) == (403, 0)


async def test_threat_11_websockets_are_closed_with_1008() -> None:
    refused: list[Headers] = [[(b"host", b"evil.example")], [(b"host", b"localhost"), (b"origin", b"null")]]
    for headers in refused:
        sent, reached = await ask(headers, kind="websocket")
        assert (sent.messages[0]["type"], sent.messages[0]["code"], reached) == ("websocket.close", 1008, 0)
    _, reached = await ask([(b"host", b"localhost"), (b"origin", b"http://localhost")], kind="websocket")
    assert reached == 1


async def test_the_null_origin_passes_when_it_is_listed() -> None:
    app = Called()
    guard = HostOriginGuard(app, ["localhost"], ["null"])
    await call(guard, scope_of([(b"host", b"localhost"), (b"origin", b"null")]))
    assert app.times == 1


async def test_a_preflight_is_answered_without_the_app() -> None:
    sent, reached = await ask(
        [
            (b"host", b"localhost"),
            (b"origin", b"http://localhost:6274"),
            (b"access-control-request-method", b"POST"),
            (b"access-control-request-headers", b"content-type, Mcp-Param-City, x-evil, mcp-param-a b"),
        ],
        method="OPTIONS",
    )
    assert (sent.status, reached) == (204, 0)
    assert sent.headers["access-control-allow-origin"] == "http://localhost:6274"
    assert sent.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert sent.headers["access-control-max-age"] == "600"
    allowed = sent.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "mcp-session-id", "last-event-id", "mcp-param-city"} <= set(allowed)
    assert not {"x-evil", "mcp-param-a b"} & set(allowed)


async def test_options_that_is_no_preflight_reaches_the_app() -> None:
    _, reached = await ask([(b"host", b"localhost")], method="OPTIONS")
    assert reached == 1


async def test_a_route_that_speaks_for_itself_keeps_its_cors_header() -> None:
    async def open_to_all(_scope: object, _receive: object, send: object) -> None:
        headers = [(b"access-control-allow-origin", b"*")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})  # type: ignore[operator]

    guard = HostOriginGuard(open_to_all, ["localhost"], ["http://localhost"])
    sent = await call(guard, scope_of([(b"host", b"localhost"), (b"origin", b"http://localhost")]))
    assert sent.messages[0]["headers"] == [(b"access-control-allow-origin", b"*")]


async def test_a_flood_of_new_hosts_changes_no_answer() -> None:
    guard = HostOriginGuard(Called(), HOSTS, ORIGINS)
    for number in range(3000):
        assert (await call(guard, scope_of([(b"host", b"h%d.evil.example" % number)]))).status == 421
    assert (await call(guard, scope_of([(b"host", b"gw.example.com")]))).status == 200


@pytest.mark.parametrize("entry", ["", "*", "http://a", "a b", "a/b", "user@a", "*.", "a:b"])
def test_an_entry_that_is_no_host_is_refused_at_start(entry: str) -> None:
    with pytest.raises(ValueError, match="not a host"):
        HostOriginGuard(Called(), [entry], [])


@pytest.mark.parametrize("entry", ["", "*", "a.example", "https://", "https://a/b", "https://*"])
def test_an_entry_that_is_no_origin_is_refused_at_start(entry: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        HostOriginGuard(Called(), [], [entry])


def test_on_loopback_the_defaults_are_loopback_and_the_public_address() -> None:
    hosts, origins = defaults("127.0.0.1", 8080, "http://127.0.0.1:8080")
    assert {"127.0.0.1:*", "localhost:*", "[::1]:*", "127.0.0.1:8080"} == set(hosts)
    assert {"http://localhost:*", "http://[::1]:*", "http://127.0.0.1:*"} < set(origins)
    HostOriginGuard(Called(), hosts, origins)


def test_elsewhere_the_defaults_are_the_public_address_and_the_bound_one() -> None:
    hosts, origins = defaults("0.0.0.0", 8080, "https://gw.example.com")
    assert (hosts, origins) == (("gw.example.com",), ("https://gw.example.com",))
    hosts, origins = defaults("fd00::1", 8080, "https://gw.example.com:8443")
    assert (hosts, origins) == (("gw.example.com:8443", "[fd00::1]:8080"), ("https://gw.example.com:8443",))
    HostOriginGuard(Called(), hosts, origins)
