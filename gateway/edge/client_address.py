"""Which clients count as one neighbour."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address


def neighbour(address: str) -> str:
    """An IPv4 address as it is, and an IPv6 address by its /64, which is what one customer is given."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(IPv6Network((parsed, 64), strict=False))


def within(networks: Iterable[IPv4Network | IPv6Network], address: str) -> bool:
    """Whether the address lies in one of the networks."""
    try:
        place = ip_address(address)
    except ValueError:
        return False
    return any(place in network for network in networks)


def client_address(peer: str, forwarded: str | None, trusted: Callable[[str], bool]) -> str:
    """Who really calls: the last hop of `X-Forwarded-For` that is no trusted proxy, believed only of a trusted one."""
    if forwarded is None or not trusted(peer):
        return peer
    for hop in reversed(forwarded.split(",")):
        peer = hop.strip()
        if not trusted(peer):
            break
    return peer
