"""The fixture server as a gateway module: `module: tests.conformance.fixture`."""

from typing import Any

from mcp.server import Server

from gateway.contract import Host, Manifest
from tests.conformance.backend import build

manifest = Manifest(uri_prefixes=("test://",))


def server(host: Host) -> Server[Any]:
    return build()
