"""Addresses that several pieces give out."""

from gateway.settings import Settings, http_address


def operators_url(settings: Settings, public_url: str) -> str:
    """Where operators come to, for a gateway whose public address is this: a port of their own, where there is one."""
    server = settings.server
    if server.ops_port is None:
        return public_url
    return server.ops_public_url or http_address(server.host, server.ops_port)
