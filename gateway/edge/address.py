"""Which clients count as one neighbour."""

from ipaddress import IPv6Address, IPv6Network


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
