"""Runs the authorization scenarios of the suite: `python -m tests.conformance.authorization [auth/SCENARIO…]`.

The server scenarios test the embedded authorization server. The client scenarios test `gatehouse stdio`, which signs
a user in, and the gateway, which uses client credentials for a backend.
"""

import asyncio
import re
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Collection
from pathlib import Path
from typing import Final

import httpx

from tests.conformance.child_process import child_process
from tests.conformance.clients import INDEX, run_client_scenarios
from tests.conformance.suite import BIN_FOLDER, install, node_environment
from tests.conftest import run_gateway
from tests.peers.oauth_flow import BrowserUser, OAuthTestClient

_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
_SECONDS: Final = 120.0
_SERVER_SCENARIOS: Final = ("authorization-server-metadata-endpoint", "authorization-code-grant")


async def main(only: Collection[str]) -> int:
    await install()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gatehouse-authorization-") as name:
        folder = Path(name)
        failures += [] if only else await _run_server_scenarios(folder)
        failures += await run_client_scenarios(folder / "clients", only)
    for failure in failures:
        print(f"✗ {failure}")
    if not failures:
        print("✓ No failures.")
    return 1 if failures else 0


async def _run_server_scenarios(folder: Path) -> list[str]:
    async with run_gateway(folder, backends={"core": {"module": "backends.core"}}) as gateway:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = str(found.getsockname()[1])
        client = await OAuthTestClient.register(gateway.base, f"http://127.0.0.1:{port}/callback")
        code = await gateway.app.identity.create_sign_in_code()
        assert code is not None
        user = BrowserUser(code=code)
        options = ("--url", gateway.base, "--client-id", client.id, "--resource", gateway.url, "-p", port)
        node = (str(BIN_FOLDER / "node"), INDEX, "authorization", *options)
        async with child_process(*node, env=node_environment(), stdout=PIPE, stderr=STDOUT) as suite:
            assert suite.stdout is not None
            async with asyncio.timeout(_SECONDS):
                output = await _handle_output(suite.stdout, user)
    missing = [name for name in _SERVER_SCENARIOS if not re.search(rf"✓ {name}: [1-9]\d* passed, 0 failed", output)]
    return [f"{name} did not pass" for name in missing]


async def _handle_output(out: asyncio.StreamReader, user: BrowserUser) -> str:
    """Print the output of the suite and open the authorization pages that it requests. Returns the output."""
    output = ""
    while line := (await out.readline()).decode(errors="replace"):
        print(line, end="")
        output += line
        if (page := _PAGE.search(line)) is not None:
            callback = await user.visit(page[0])
            async with httpx.AsyncClient() as http:
                await http.get(callback.pop("to"), params=callback)
    return output


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
