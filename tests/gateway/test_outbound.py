"""The guarded client: what it refuses, where it connects, and how much it lets in."""

import asyncio
import gzip
import socket
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import httpcore
import httpx
import pytest
import respx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Fault, Kind
from gateway.outbound import Target, client, is_public, resolve, target

PUBLIC = "93.184.215.14"
LOOPBACK = frozenset({"127.0.0.1"})
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

NOT_PUBLIC = """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1
    203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 8.8.8 010.8.8.8
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:93.184.215.14 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1
    2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1 3ffe::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254
    fe80::1 fe80::1%eth0 fec0::1 ff02::1 2606:4700:4700::1111%eth0 localhost
"""


@pytest.mark.parametrize("address", [*NOT_PUBLIC.split(), ""])
def test_threat_13_only_a_global_unicast_address_is_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        PUBLIC,
        "100.63.255.255",
        "100.128.0.1",
        "172.32.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
    ],
)
def test_a_global_unicast_address_is_public(address: str) -> None:
    assert is_public(address)


@settings(deadline=None)
@given(st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_calls_local(address: IPv4Address | IPv6Address) -> None:
    assert not is_public(str(address)) or (address.is_global and not address.is_multicast)


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_threat_13_no_ipv6_address_that_holds_an_ipv4_address_is_public(inner: IPv4Address) -> None:
    bits = int(inner)
    prefixes = (0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96, 0x64FF9B0001 << 80)
    embedded = [IPv6Address(prefix | bits) for prefix in prefixes]
    embedded.append(IPv6Address(0x2002 << 112 | bits << 80))
    embedded.append(IPv6Address(0x20010000 << 96 | bits ^ 0xFFFFFFFF))
    assert not any(is_public(str(address)) for address in embedded)


# ---- what a URL may look like -------------------------------------------------------------------------------------

ODD_URLS = [
    "https://0177.0.0.1/",
    "https://0x7f.0.0.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://017700000001/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://127.0.0.0x1/",
    "https://1.1.1.1.1/",
    "https://example.com./",
    "https://example..com/",
    "https://.example.com/",
    "https://-example.com/",
    "https:///path",
    "https://",
    "https:example.com",
    "https:/example.com",
    "https://:443/",
    "//example.com/",
    "/relative",
    "",
    "https://１２７.0.0.1/",
    "https://127。0。0。1/",
    "https://ⓔxample.com/",
    "https://bücher.example/",
    "https://exa\u00admple.com/",
    "https://example.com\u2044@evil.example/",
    "https://user@example.com/",
    "https://user:secret@example.com/",
    "https://@example.com/",
    "https://example.com\\@evil.example/",
    "https://example.com\\evil.example/",
    "https://exam ple.com/",
    "https://example.com\t/",
    "https://example.com\r\nHost: evil/",
    "https://%31%32%37.0.0.1/",
    "https://127.0.0.1%2f.example.com/",
    "https://[fe80::1%25eth0]/",
    "https://[::1/",
    "https://[::1].example.com/",
    "https://[127.0.0.1]/",
    "https://" + "a" * 64 + ".example/",
    "https://" + "a." * 127 + "example/",
    "https://example.com:99999/",
    "https://example.com:0/",
    "https://example.com:-1/",
    "https://example.com:port/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "data:text/plain,x",
    "https://example.com/\ud800",
]


@pytest.mark.parametrize("url", ODD_URLS, ids=ascii)
@pytest.mark.parametrize("allow_private", [frozenset[str](), True], ids=["public", "vouched"])
def test_threat_13_an_odd_spelling_is_refused_even_for_a_vouched_target(url: str, allow_private: bool) -> None:
    with pytest.raises(Fault) as caught:
        target(url, allow_private=allow_private)
    assert caught.value.kind is Kind.DENIED
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://example.com:8443/",
        "https://example.com:22/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
    ],
)
def test_threat_13_plain_http_other_ports_and_private_addresses_need_a_vouched_host(url: str) -> None:
    with pytest.raises(Fault, match=r"may only be|may not be|not on the public internet") as caught:
        target(url)
    assert caught.value.kind is Kind.DENIED
    assert target(url, allow_private=True).vouched


def test_a_judged_url_is_taken_apart() -> None:
    assert target("HTTPS://Example.COM/a%20b?q=1#f") == Target("https", "example.com", 443, "/a%20b?q=1", vouched=False)
    assert target("https://xn--bcher-kva.example").host == "xn--bcher-kva.example"
    assert target("https://example.com:80/").port == 80
    assert target("https://[2606:4700:0:0::1111]/").host == "2606:4700::1111"


def test_a_vouched_host_may_be_plain_private_and_on_any_port() -> None:
    vouched = frozenset({"my_service", "::1"})
    assert target("http://MY_service:3001/mcp", allow_private=vouched) == Target(
        "http", "my_service", 3001, "/mcp", True
    )
    assert target("http://[0:0::1]:3001/mcp", allow_private=vouched).host == "::1"
    with pytest.raises(Fault):
        target("http://other:3001/mcp", allow_private=vouched)


WRITTEN = st.tuples(
    st.sampled_from(["https", "https", "HTTPS", "http", ""]),
    st.sampled_from(["://", "://", "://", ":", "//", "://a@", "://127.0.0.1@", "://[", "://1."]),
    st.sampled_from(["example.com", "1.1.1.1", "::1", "2606:4700:0::1]", "xn--a", ""]) | st.text(max_size=8),
    st.sampled_from(["", "/", ":443", ":80/", ":+443", ":8080", ".", "#", "?", "\\", "%00"]) | st.text(max_size=8),
).map("".join)


@settings(deadline=None, max_examples=300)
@given(WRITTEN)
def test_threat_13_any_text_is_denied_or_judged_as_httpx_reads_it(url: str) -> None:
    judged = _judgement(url)
    if isinstance(judged, Kind):
        assert judged is Kind.DENIED
        return
    read = httpx.URL(url).raw_host.decode()
    assert (judged.scheme, judged.port in (80, 443)) == ("https", True)
    assert judged.host in (read, str(IPv6Address(read)) if ":" in read else read)
    assert is_public(judged.host) or not judged.host.replace(".", "").isdigit()


def _judgement(url: str) -> Target | Kind:
    try:
        return target(url)
    except Fault as fault:
        return fault.kind


# ---- what a name may lead to --------------------------------------------------------------------------------------


class Names:
    """A resolver that answers each question with the next of its answers, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Network(httpcore.AsyncMockBackend):
    """Notes which addresses it was told to connect to; those in `dead` do not answer."""

    def __init__(self, answer: bytes = OK, dead: Iterable[str] = ()) -> None:
        super().__init__([answer])
        self.dead = frozenset(dead)
        self.connected: list[tuple[str, int]] = []
        self.seconds: list[float | None] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        self.seconds.append(timeout)
        if host in self.dead:
            raise httpcore.ConnectError
        return await super().connect_tcp(host, port)


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.7", "::1", "64:ff9b::7f00:1", "fec0::1", "not an address"])
async def test_threat_13_one_private_address_among_public_ones_refuses_the_name(private: str) -> None:
    names, network = Names([PUBLIC, private, "1.1.1.1"]), Network()
    async with client(resolver=names, network=network) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://mixed.example/")
    assert caught.value.kind is Kind.DENIED
    assert "mixed.example" in caught.value.message
    assert private not in caught.value.message
    assert network.connected == []


async def test_threat_13_a_rebinding_name_is_asked_once_and_the_connection_goes_where_it_was_judged() -> None:
    names, network = Names([PUBLIC], ["127.0.0.1"]), Network()
    async with client(resolver=names, network=network) as http:
        first = await http.get("https://rebind.example/", headers={"Connection": "close"})
        assert first.text == "ok"
        assert names.asked == [("rebind.example", 443)]
        assert network.connected == [(PUBLIC, 443)]
        with pytest.raises(Fault) as caught:
            await http.get("https://rebind.example/")
    assert caught.value.kind is Kind.DENIED
    assert network.connected == [(PUBLIC, 443)]


async def test_an_address_in_the_url_is_not_looked_up() -> None:
    names, network = Names([]), Network()
    async with client(resolver=names, network=network) as http:
        await http.get(f"https://{PUBLIC}/")
    assert names.asked == []
    assert network.connected == [(PUBLIC, 443)]


async def test_the_next_address_is_tried_when_one_does_not_answer_and_each_has_its_share_of_the_time() -> None:
    network = Network(dead=["1.1.1.1", "2606:4700::1111"])
    async with client(resolver=Names(["2606:4700::1111", "1.1.1.1", PUBLIC]), network=network, timeout=6) as http:
        assert (await http.get("https://example.com/")).text == "ok"
    assert network.connected == [("2606:4700::1111", 443), ("1.1.1.1", 443), (PUBLIC, 443)]
    assert network.seconds == [2, 2, 2]


async def test_a_name_that_cannot_be_found_is_unavailable() -> None:
    async def nobody(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    for resolver in (nobody, Names([])):
        async with client(resolver=resolver) as http:
            with pytest.raises(Fault, match=r"gone\.example cannot be found") as caught:
                await http.get("https://gone.example/")
        assert caught.value.kind is Kind.UNAVAILABLE


async def test_resolve_gives_the_judged_addresses_of_a_target() -> None:
    public, private = Names([PUBLIC]), Names(["10.0.0.1"])
    assert await resolve(target("https://example.com/"), public) == [PUBLIC]
    with pytest.raises(Fault, match="not on the public internet"):
        await resolve(target("https://example.com/"), private)
    vouched = target("http://inside:9000/", allow_private=frozenset({"inside"}))
    assert await resolve(vouched, private) == ["10.0.0.1"]


async def test_threat_13_localhost_by_the_system_resolver_is_refused() -> None:
    with pytest.raises(Fault) as caught:
        await resolve(target("https://localhost/"))
    assert caught.value.kind is Kind.DENIED


# ---- real peers on the loopback -----------------------------------------------------------------------------------

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """A real HTTP server that answers every request with the same bytes and remembers the requests."""

    reply: bytes | Reply = OK
    port: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self._answer(writer)
        writer.close()
        self.gone.set()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.reply, bytes):
            writer.write(self.reply)
            await writer.drain()
        else:
            await self.reply(writer)


@asynccontextmanager
async def peer(reply: bytes | Reply = OK, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    here = Peer(reply)
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0, ssl=tls)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()


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


# ---- how much it lets in ------------------------------------------------------------------------------------------


async def _endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()


async def test_threat_33_an_endless_body_is_cut_off_and_its_connection_closed() -> None:
    async with peer(_endless) as there, client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await http.get(there.url)
        assert caught.value.kind is Kind.TOO_LARGE
        assert caught.value.details == {"max_bytes": 100_000}
        await asyncio.wait_for(there.gone.wait(), 5)


async def test_a_streamed_body_is_capped_too() -> None:
    seen = 0

    async def read(http: httpx.AsyncClient, url: str) -> None:
        nonlocal seen
        async with http.stream("GET", url) as response:
            async for chunk in response.aiter_bytes():
                seen += len(chunk)

    async with peer(_endless) as there, client(allow_private=LOOPBACK, max_bytes=100_000) as http:
        with pytest.raises(Fault) as caught:
            await read(http, there.url)
    assert caught.value.kind is Kind.TOO_LARGE
    assert 0 < seen <= 100_000


BOMB = gzip.compress(bytes(32 * 1024 * 1024), compresslevel=1)


async def test_a_body_of_exactly_the_cap_is_let_in() -> None:
    async with peer() as there, client(allow_private=LOOPBACK, max_bytes=2) as http:
        assert (await http.get(there.url)).content == b"ok"


@pytest.mark.parametrize("encoding", [b"gzip", b"GZip", b"deflate", b"identity, gzip", b"br", b"unheard-of"])
async def test_threat_33_a_compressed_answer_is_refused_before_it_grows(encoding: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(BOMB))
    async with peer(head + BOMB) as there, client(allow_private=LOOPBACK) as http:
        tracemalloc.start()
        try:
            with pytest.raises(Fault, match="compressed") as caught:
                await http.get(there.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert caught.value.kind is Kind.DENIED
    assert peak < 4 * 1024 * 1024


async def test_refused_answers_do_not_use_up_the_connections() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n"
    async with peer(reply) as there, client(allow_private=LOOPBACK, timeout=5) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="compressed"):
                await http.get(there.url)
        there.reply = OK
        assert (await http.get(there.url)).text == "ok"


async def test_an_answer_that_says_identity_is_let_in() -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"
    async with peer(reply) as there, client(allow_private=LOOPBACK) as http:
        assert (await http.get(there.url)).text == "ok"


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _dripping(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _informing(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("reply", [_silent, _dripping, _informing])
async def test_the_whole_answer_must_come_in_time_however_it_dawdles(reply: Reply) -> None:
    async with peer(reply) as there, client(allow_private=LOOPBACK, timeout=0.3) as http:
        async with asyncio.timeout(5):
            with pytest.raises(Fault, match="did not answer in time") as caught:
                await http.get(there.url, timeout=None)
    assert caught.value.kind is Kind.TIMEOUT


async def test_a_slow_resolver_counts_against_the_time() -> None:
    async def stuck(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async with client(resolver=stuck, timeout=0.1) as http:
        with pytest.raises(Fault) as caught:
            await http.get("https://slow.example/")
    assert caught.value.kind is Kind.TIMEOUT


async def test_a_client_is_as_good_as_new_after_it_gave_up() -> None:
    async with peer(_dripping) as there, client(allow_private=LOOPBACK, timeout=0.05) as http:
        for _ in range(20):  # more than the pool has connections
            with pytest.raises(Fault, match="did not answer in time"):
                await http.get(there.url)
        there.reply = OK
        assert (await http.get(there.url)).text == "ok"


async def test_a_closed_port_and_a_broken_answer_are_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with client(allow_private=LOOPBACK) as http:
            with pytest.raises(Fault, match="cannot be reached") as refused:
                await http.get(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    async with peer(b"SSH-2.0-OpenSSH_9.6\r\n\r\n") as there, client(allow_private=LOOPBACK) as http:
        with pytest.raises(Fault, match="broke the rules") as broken:
            await http.get(there.url)
    assert [fault.value.kind for fault in (refused, broken)] == [Kind.UNAVAILABLE] * 2
    assert isinstance(refused.value.__cause__, httpcore.ConnectError)


# ---- TLS ----------------------------------------------------------------------------------------------------------


def _certify(names: Sequence[str], folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for these names, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    both = folder / "server.pem"
    both.write_bytes(pem + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(both)
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_threat_13_tls_and_host_speak_of_the_name_while_the_address_is_pinned(tmp_path: Path) -> None:
    tls, trust = _certify(["one.example", "two.example"], tmp_path)
    said: list[str | None] = []

    def note(_connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        said.append(name)

    tls.sni_callback = note
    names = Names(["127.0.0.1"])
    vouched = frozenset({"one.example", "two.example", "three.example"})
    async with peer(tls=tls) as there, client(allow_private=vouched, resolver=names, verify=trust) as http:
        for host in ("one.example", "two.example", "one.example"):
            await http.get(f"https://{host}:{there.port}/")
        with pytest.raises(Fault) as caught:  # the certificate is not for this name
            await http.get(f"https://three.example:{there.port}/")
    # Two names on one address share no connection; one name uses its own again.
    assert said == ["one.example", "two.example", "three.example"]
    assert [head.split(b"\r\n")[1] for head in there.heads][:2] == [
        f"Host: {host}:{there.port}".encode() for host in ("one.example", "two.example")
    ]
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_a_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    tls, _ = _certify(["one.example"], tmp_path)
    vouched = frozenset({"one.example"})
    async with peer(tls=tls) as there, client(allow_private=vouched, resolver=Names(["127.0.0.1"])) as http:
        with pytest.raises(Fault) as caught:
            await http.get(f"https://one.example:{there.port}/")
    assert caught.value.kind is Kind.UNAVAILABLE
    assert there.heads == []


# ---- respx stands in for the far side -----------------------------------------------------------------------------


@respx.mock
async def test_respx_stands_in_below_the_guard_and_no_name_is_looked_up() -> None:
    names = Names([])
    route = respx.get("https://issuer.example/jwks", params={"v": "1"}).respond(json={"keys": []})
    async with client(resolver=names) as http:
        assert (await http.get("https://issuer.example/jwks?v=1")).json() == {"keys": []}
        with pytest.raises(Fault):
            await http.get("http://issuer.example/jwks")
    assert route.call_count == 1
    assert names.asked == []


@respx.mock
async def test_what_respx_answers_is_bounded_and_translated_like_the_real_thing() -> None:
    respx.get("https://issuer.example/big").respond(content=b"x" * 11)
    respx.get("https://issuer.example/zip").respond(content=b"x", headers={"Content-Encoding": "gzip"})
    respx.get("https://issuer.example/late").mock(side_effect=httpx.ReadTimeout)
    respx.get("https://issuer.example/down").mock(side_effect=httpx.ConnectError)
    expected = {"big": Kind.TOO_LARGE, "zip": Kind.DENIED, "late": Kind.TIMEOUT, "down": Kind.UNAVAILABLE}
    async with client(max_bytes=10) as http:
        for path, kind in expected.items():
            with pytest.raises(Fault) as caught:
                await http.get(f"https://issuer.example/{path}")
            assert caught.value.kind is kind
            assert "issuer.example" in caught.value.message
