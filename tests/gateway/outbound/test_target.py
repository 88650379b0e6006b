"""Validation of URLs and addresses in every spelling."""

from ipaddress import IPv4Address, IPv6Address

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Fault, Kind
from gateway.outbound import OutboundTarget, is_public, parse_target, resolve

from .peers import PUBLIC, FakeResolver

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
def test_threat_13_special_addresses_are_not_public(address: str) -> None:
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
def test_global_unicast_addresses_are_public(address: str) -> None:
    assert is_public(address)


@settings(deadline=None)
@given(st.ip_addresses())
def test_public_addresses_are_global_in_the_standard_library(address: IPv4Address | IPv6Address) -> None:
    assert not is_public(str(address)) or (address.is_global and not address.is_multicast)


@settings(deadline=None)
@given(st.ip_addresses(v=4))
def test_threat_13_ipv6_addresses_that_embed_ipv4_are_not_public(inner: IPv4Address) -> None:
    bits = int(inner)
    prefixes = (0, 0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96, 0x64FF9B0001 << 80)
    embedded = [IPv6Address(prefix | bits) for prefix in prefixes]
    embedded.append(IPv6Address(0x2002 << 112 | bits << 80))
    embedded.append(IPv6Address(0x20010000 << 96 | bits ^ 0xFFFFFFFF))
    assert not any(is_public(str(address)) for address in embedded)


AMBIGUOUS_URLS = [
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


@pytest.mark.parametrize("url", AMBIGUOUS_URLS, ids=ascii)
@pytest.mark.parametrize("allow_private", [frozenset[str](), True], ids=["public", "trusted"])
def test_threat_13_ambiguous_url_is_denied_even_for_trusted_hosts(url: str, allow_private: bool) -> None:
    with pytest.raises(Fault) as caught:
        parse_target(url, allow_private=allow_private)
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
def test_threat_13_plain_http_other_ports_and_private_addresses_need_a_trusted_host(url: str) -> None:
    with pytest.raises(Fault, match=r"may only be|may not be|not on the public internet") as caught:
        parse_target(url)
    assert caught.value.kind is Kind.DENIED
    assert parse_target(url, allow_private=True).is_trusted


def test_valid_url_is_parsed() -> None:
    assert parse_target("HTTPS://Example.COM/a%20b?q=1#f") == OutboundTarget(
        "https", "example.com", 443, "/a%20b?q=1", is_trusted=False
    )
    assert parse_target("https://xn--bcher-kva.example").host == "xn--bcher-kva.example"
    assert parse_target("https://example.com:80/").port == 80
    assert parse_target("https://[2606:4700:0:0::1111]/").host == "2606:4700::1111"


def test_trusted_host_may_be_private_over_http_on_any_port() -> None:
    trusted = frozenset({"my_service", "::1"})
    assert parse_target("http://MY_service:3001/mcp", allow_private=trusted) == OutboundTarget(
        "http", "my_service", 3001, "/mcp", True
    )
    assert parse_target("http://[0:0::1]:3001/mcp", allow_private=trusted).host == "::1"
    with pytest.raises(Fault):
        parse_target("http://other:3001/mcp", allow_private=trusted)


URL_TEXTS = st.tuples(
    st.sampled_from(["https", "https", "HTTPS", "http", ""]),
    st.sampled_from(["://", "://", "://", ":", "//", "://a@", "://127.0.0.1@", "://[", "://1."]),
    st.sampled_from(["example.com", "1.1.1.1", "::1", "2606:4700:0::1]", "xn--a", ""]) | st.text(max_size=8),
    st.sampled_from(["", "/", ":443", ":80/", ":+443", ":8080", ".", "#", "?", "\\", "%00"]) | st.text(max_size=8),
).map("".join)


@settings(deadline=None, max_examples=300)
@given(URL_TEXTS)
def test_threat_13_any_text_is_denied_or_parsed_as_httpx_does(url: str) -> None:
    parsed = _parse_or_kind(url)
    if isinstance(parsed, Kind):
        assert parsed is Kind.DENIED
        return
    read = httpx.URL(url).raw_host.decode()
    assert (parsed.scheme, parsed.port in (80, 443)) == ("https", True)
    assert parsed.host in (read, str(IPv6Address(read)) if ":" in read else read)
    assert is_public(parsed.host) or not parsed.host.replace(".", "").isdigit()


def _parse_or_kind(url: str) -> OutboundTarget | Kind:
    try:
        return parse_target(url)
    except Fault as fault:
        return fault.kind


async def test_resolve_returns_validated_addresses() -> None:
    public, private = FakeResolver([PUBLIC]), FakeResolver(["10.0.0.1"])
    assert await resolve(parse_target("https://example.com/"), public) == [PUBLIC]
    with pytest.raises(Fault, match="not on the public internet"):
        await resolve(parse_target("https://example.com/"), private)
    trusted = parse_target("http://inside:9000/", allow_private=frozenset({"inside"}))
    assert await resolve(trusted, private) == ["10.0.0.1"]


async def test_threat_13_localhost_by_the_system_resolver_is_denied() -> None:
    with pytest.raises(Fault) as caught:
        await resolve(parse_target("https://localhost/"))
    assert caught.value.kind is Kind.DENIED
