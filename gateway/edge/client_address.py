"""Client addresses: grouping for limits, trusted proxies, and `X-Forwarded-For`."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address


def address_group(address: str) -> str:
    """Return the unit that limits apply to: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed, 64), strict=False))


def is_in_networks(networks: Iterable[IPv4Network | IPv6Network], address: str) -> bool:
    """Whether the address is in one of the networks."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def client_address(peer: str, forwarded: str | None, trusted: Callable[[str], bool]) -> str:
    """Return the client's address: the last untrusted hop of `X-Forwarded-For` if the peer is a trusted proxy."""
    if forwarded is None or not trusted(peer):
        return peer
    for hop in reversed(forwarded.split(",")):
        peer = hop.strip()
        if not trusted(peer):
            break
    return peer
