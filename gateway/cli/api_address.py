"""Where the operator's API of a running gateway is."""

from pathlib import Path
from typing import Final

from gateway.cli.configured import read_without_backends
from gateway.cli.failure import Failure
from gateway.parts.addresses import operators_url
from gateway.settings import Settings, http_address

ELSEWHERE: Final = "where server.ops_port is set it is on that port alone: give its address with --url"


def api_address(url: str | None, config: Path | None) -> str:
    """The API of the gateway whose MCP endpoint or address `url` is; without one, of the gateway of these settings.

    With `server.ops_port` the API is on that port alone: it is found where these are that gateway's settings.
    """
    if url is None:
        server = read_without_backends(config).server
        return http_address(server.host, server.port if server.ops_port is None else server.ops_port)
    base = url.rstrip("/").partition("/mcp")[0].rstrip("/")
    try:
        settings = read_without_backends(config)
    except Failure:
        return base  # they are about another gateway, or about none
    return _of(settings, base)


def _of(settings: Settings, base: str) -> str:
    server = settings.server
    if server.ops_port is None:
        return base
    if base == server.public_url:
        return operators_url(settings, server.public_url)
    here = {http_address(host, server.port) for host in (server.host, "127.0.0.1", "localhost")}
    return http_address(server.host, server.ops_port) if base in here else base
