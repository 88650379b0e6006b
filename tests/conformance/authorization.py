"""`python -m tests.conformance.authorization`: the suite's authorization mode against the embedded server."""

import asyncio
import re
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

import httpx

from tests.conformance.child import child
from tests.conformance.suite import _BIN, _HOME, _env, install
from tests.conftest import run_gateway
from tests.peers.person import Person, Program

_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
_SECONDS: Final = 120.0


async def main() -> int:
    await install()
    with tempfile.TemporaryDirectory(prefix="gatehouse-authorization-") as folder:
        async with run_gateway(Path(folder), backends={"core": {"module": "backends.core"}}) as gateway:
            with socket.create_server(("127.0.0.1", 0)) as found:
                port = str(found.getsockname()[1])
            program = await Program.register(gateway.base, f"http://127.0.0.1:{port}/callback")
            person = Person(code=await gateway.house.identity.sign_in_code())
            asked = ("--url", gateway.base, "--client-id", program.id, "--resource", gateway.url, "-p", port)
            index = str(_HOME / "dist" / "index.js")
            async with child(
                str(_BIN / "node"),
                index,
                "authorization",
                *asked,
                env=_env(),
                stdout=PIPE,
                stderr=STDOUT,
            ) as suite:
                assert suite.stdout is not None
                async with asyncio.timeout(_SECONDS):
                    said = await _attend(suite.stdout, person)
    return 0 if re.search(r"Total: [1-9]\d* passed, 0 failed", said) else 1


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
    sys.exit(asyncio.run(main()))
