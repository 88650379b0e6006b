"""The suite's backend as the gateway loads it: `module: tests.conformance.fixture`."""

from typing import Any

from mcp.server import Server

from gateway.contract import Host, Manifest
from tests.conformance.backend import build

manifest = Manifest(uri_prefixes=("test://",))


def server(home: Host) -> Server[Any]:
    return build()
