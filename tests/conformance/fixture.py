"""The suite's backend as the gateway loads it: `module: tests.conformance.fixture`."""

from typing import Any

from mcp.server import Server

from gateway.contract import Home, Manifest
from tests.conformance.backend import build

manifest = Manifest(owns=("test://",))


def server(home: Home) -> Server[Any]:
    return build()
