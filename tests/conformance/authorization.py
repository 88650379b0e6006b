"""`python -m tests.conformance.authorization [auth/SCENARIO…]`: the suite on authorization, for each part that we play.

Its authorization mode tries the embedded server. Its client scenarios try `gatehouse stdio`, which signs a person in,
and the gateway, which has a token of its own for a backend by client credentials.
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

from tests.conformance.child_process import child
from tests.conformance.clients import INDEX, try_clients
from tests.conformance.suite import _BIN, _env, install
from tests.conftest import run_gateway
from tests.peers.oauth_flow import Person, Program

_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
_SECONDS: Final = 120.0
_SERVER_SCENARIOS: Final = ("authorization-server-metadata-endpoint", "authorization-code-grant")


async def main(only: Collection[str]) -> int:
    await install()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gatehouse-authorization-") as name:
        folder = Path(name)
        wrong += [] if only else await _server(folder)
        wrong += await try_clients(folder / "clients", only)
    for complaint in wrong:
        print(f"✗ {complaint}")
    if not wrong:
        print("✓ Nothing failed.")
    return 1 if wrong else 0


async def _server(folder: Path) -> list[str]:
    async with run_gateway(folder, backends={"core": {"module": "backends.core"}}) as gateway:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = str(found.getsockname()[1])
        program = await Program.register(gateway.base, f"http://127.0.0.1:{port}/callback")
        person = Person(code=await gateway.house.identity.sign_in_code())
        asked = ("--url", gateway.base, "--client-id", program.id, "--resource", gateway.url, "-p", port)
        node = (str(_BIN / "node"), INDEX, "authorization", *asked)
        async with child(*node, env=_env(), stdout=PIPE, stderr=STDOUT) as suite:
            assert suite.stdout is not None
            async with asyncio.timeout(_SECONDS):
                said = await _attend(suite.stdout, person)
    missing = [name for name in _SERVER_SCENARIOS if not re.search(rf"✓ {name}: [1-9]\d* passed, 0 failed", said)]
    return [f"{name} did not pass" for name in missing]


async def _attend(out: asyncio.StreamReader, person: Person) -> str:
    """Print what the suite says, and do in a browser what it asks for."""
    said = ""
    while line := (await out.readline()).decode(errors="replace"):
        print(line, end="")
        said += line
        if (page := _PAGE.search(line)) is not None:
            told = await person.visit(page[0])
            async with httpx.AsyncClient() as http:
                await http.get(told.pop("to"), params=told)
    return said


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
