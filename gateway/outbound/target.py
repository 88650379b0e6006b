"""Decides which URLs and addresses outbound requests may reach."""

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
"""Maps (host, port) to addresses. Raises `OSError` when the host has none."""

TrustedHosts = frozenset[str] | bool
"""Hosts that the operator trusts, or True for all. They may be private, on any port, over plain HTTP."""

_PORTS: Final = (80, 443)
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
# System resolvers parse such names as IPv4 addresses: 0177.1, 0x7f000001, 2130706433.
_NUMERIC: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)")

# Not `is_global` of the standard library: it differs between releases and calls several of these networks global. They
# include cloud metadata services. 168.63.129.16 is a public address, but on Azure the host machine answers it.
_SPECIAL_V4: Final = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
    192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3
"""
# Within 2000::/3. Networks that embed IPv4 addresses (Teredo in 2001::/23, 6to4 in 2002::/16) can embed private ones.
_SPECIAL_V6: Final = "2001::/23 2001:db8::/32 2002::/16 3ffe::/16 3fff::/20"
_GLOBAL: Final = (ip_network("0.0.0.0/0"), ip_network("2000::/3"))
_SPECIAL: Final = tuple(ip_network(text) for text in (_SPECIAL_V4 + _SPECIAL_V6).split())


@dataclass(frozen=True, slots=True)
class OutboundTarget:
    """The parts of a validated URL."""

    scheme: str
    host: str
    """In lower case. An IPv6 address is in its shortest form, without brackets."""
    port: int
    path: str
    """Path and query as sent."""
    is_trusted: bool


def is_public(address: str) -> bool:
    """Whether this is a globally routable unicast address that embeds no other address."""
    parsed = _parse_address(address)
    return (
        parsed is not None
        and any(parsed in network for network in _GLOBAL)
        and not any(parsed in network for network in _SPECIAL)
    )


def parse_target(url: str, *, allow_private: TrustedHosts = frozenset()) -> OutboundTarget:
    """Parse and validate a URL, without resolving its host. Raises `Fault(DENIED)` when it may not be fetched."""
    authority = _AUTHORITY.match(url)
    if authority is None or not authority[1].isascii():
        raise Fault(Kind.DENIED, "The URL must be absolute, with a host in plain ASCII.")
    if "@" in authority[1]:
        raise Fault(Kind.DENIED, "The URL must not carry a user name or password.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError) as exc:
        raise Fault(Kind.DENIED, "The URL cannot be read.") from exc
    host = _parse_host(parsed.raw_host.decode("ascii"))
    is_trusted_host = is_trusted(host, allow_private)
    if parsed.scheme != "https" and not (parsed.scheme == "http" and is_trusted_host):
        raise Fault(Kind.DENIED, f"{host} may only be reached by https.")
    port = parsed.port if parsed.port is not None else {"http": 80, "https": 443}[parsed.scheme]
    if not (port in _PORTS or (is_trusted_host and 0 < port < 65536)):
        raise Fault(Kind.DENIED, f"{host} may not be reached on port {port}.")
    if not is_trusted_host and _parse_address(host):
        require_public(host, [host])
    return OutboundTarget(parsed.scheme, host, port, parsed.raw_path.decode("ascii"), is_trusted_host)


async def resolve(target: OutboundTarget, resolver: Resolver | None = None) -> list[str]:
    """Resolve a target's host. Raises `Fault(DENIED)` unless all addresses are public or the host is trusted."""
    return await resolve_host(target.host, target.port, target.is_trusted, resolver or system_resolver)


async def system_resolver(host: str, port: int) -> list[str]:
    """Resolve a host with the resolver of the operating system."""
    return _distinct_addresses(await get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM))


def resolve_blocking(host: str, port: int) -> list[str]:
    """Resolve a host as `system_resolver` does, blocking the calling thread."""
    return _distinct_addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _distinct_addresses(entries: Iterable[tuple[Any, ...]]) -> list[str]:
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in entries))


async def resolve_host(host: str, port: int, is_trusted_host: bool, resolver: Resolver) -> list[str]:
    """Resolve and validate a host.

    Raises `Fault(UNAVAILABLE)` without an address, and `Fault(DENIED)` for a private one unless the host is trusted.
    """
    try:
        addresses = [host] if _parse_address(host) else list(await resolver(host, port))
    except OSError as exc:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.") from exc
    if not addresses:
        raise Fault(Kind.UNAVAILABLE, f"{host} cannot be found.")
    if not is_trusted_host:
        require_public(host, addresses)
    return addresses


def require_public(host: str, addresses: Sequence[str]) -> None:
    """Raise `Fault(DENIED)` unless all addresses are public."""
    if not all(is_public(address) for address in addresses):
        raise Fault(Kind.DENIED, f"{host} is not on the public internet.")


def is_trusted(host: str, allow_private: TrustedHosts) -> bool:
    return allow_private if isinstance(allow_private, bool) else host in allow_private


def _parse_host(text: str) -> str:
    if address := _parse_address(text):
        return str(address)
    if not _NAME.fullmatch(text) or _NUMERIC.fullmatch(text):
        raise Fault(Kind.DENIED, f"{text[:80]!a} is not a plain host name.")
    return text


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None
