"""Which addresses and URLs may be reached at all."""

import re
import socket
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

import httpx

from gateway.errors import Fault, Kind

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) -> its addresses. Raises `OSError` when there is none."""

Vouched = frozenset[str] | bool
"""Hosts, or all, that the operator vouches for: these may be private, on any port, over plain http."""

_PORTS: Final = (80, 443)
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
# System resolvers read such a name as an IPv4 address: 0177.1, 0x7f000001, 2130706433.
_NUMERIC: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")

# Ours, because the standard library's `is_global` differs between releases and calls several of these global. Among
# them are the clouds' metadata services; 168.63.129.16 is public in name, but answered by the machine underneath.
_SPECIAL_V4: Final = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
    192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3
"""
# Inside 2000::/3 only; what embeds an IPv4 address (Teredo in 2001::/23, 6to4 in 2002::/16) can embed a private one.
_SPECIAL_V6: Final = "2001::/23 2001:db8::/32 2002::/16 3ffe::/16 3fff::/20"
_GLOBAL: Final = (ip_network("0.0.0.0/0"), ip_network("2000::/3"))
_SPECIAL: Final = tuple(ip_network(text) for text in (_SPECIAL_V4 + _SPECIAL_V6).split())


@dataclass(frozen=True, slots=True)
class OutboundTarget:
    """Where a judged URL leads."""

    scheme: str
    host: str
    """Lower case; an IPv6 address is in its shortest form, without brackets."""
    port: int
    path: str
    """With the query, as it is sent."""
    vouched: bool


def is_public(address: str) -> bool:
    """Whether it is a globally routable unicast address that holds no other address inside."""
    parsed = _address(address)
    return (
        parsed is not None
        and any(parsed in network for network in _GLOBAL)
        and not any(parsed in network for network in _SPECIAL)
    )


def target(url: str, *, allow_private: Vouched = frozenset()) -> OutboundTarget:
    """What the URL names. Raises `Fault(DENIED)` for one that may not be fetched, whatever its name resolves to."""
    authority = _AUTHORITY.match(url)
    if authority is None or not authority[1].isascii():
        raise Fault(Kind.DENIED, "The URL must be absolute, with a host in plain ASCII.")
    if "@" in authority[1]:
        raise Fault(Kind.DENIED, "The URL must not carry a user name or password.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise Fault(Kind.DENIED, "The URL cannot be read.") from exc
    host = _host(parsed.raw_host.decode("ascii"))
    vouched = is_vouched(host, allow_private)
    if parsed.scheme != "https" and not (parsed.scheme == "http" and vouched):
        raise Fault(Kind.DENIED, f"{host} may only be reached by https.")
    port = parsed.port if parsed.port is not None else {"http": 80, "https": 443}[parsed.scheme]
    if not (port in _PORTS or (vouched and 0 < port < 65536)):
        raise Fault(Kind.DENIED, f"{host} may not be reached on port {port}.")
    if not vouched and _address(host):
        _judge(host, [host])
    return OutboundTarget(parsed.scheme, host, port, parsed.raw_path.decode("ascii"), vouched)


async def resolve(target: OutboundTarget, resolver: Resolver | None = None) -> list[str]:
    """Its addresses, looked up once. Raises `Fault(DENIED)` unless all are public or the host is vouched for."""
    return await addresses_of(target.host, target.port, target.vouched, resolver or system_resolver)


async def system_resolver(host: str, port: int) -> list[str]:
    """Look the name up as this machine does."""
    return _found(await get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))


def look_up(host: str, port: int) -> list[str]:
    """The same for a thread, which waits as long as the name's own servers take."""
    return _found(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _found(answers: Iterable[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in answers))


async def addresses_of(host: str, port: int, vouched: bool, resolver: Resolver) -> list[str]:
    try:
        found = [host] if _address(host) else list(await resolver(host, port))
    except OSError as exc:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.") from exc
    if not found:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.")
    if not vouched:
        _judge(host, found)
    return found


def _judge(host: str, addresses: Sequence[str]) -> None:
    if not all(is_public(address) for address in addresses):
        raise Fault(Kind.DENIED, f"{host} is not on the public internet.")


def is_vouched(host: str, allow_private: Vouched) -> bool:
    return allow_private if isinstance(allow_private, bool) else host in allow_private


def _host(text: str) -> str:
    if address := _address(text):
        return str(address)
    if not _NAME.fullmatch(text) or _NUMERIC.fullmatch(text):
        raise Fault(Kind.DENIED, f"{text[:80]!a} is not a plain host name.")
    return text


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None
