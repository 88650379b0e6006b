"""`python -m tests.conformance.authorization`: what the suite has on authorization, for each part that we play.

Its authorization mode tries the embedded server. Of its client scenarios those apply that a program without a person
can pass: the gateway has a token of its own for a backend, by client credentials and a secret; all others ask for a
client that signs a person in, or for an extension that is not in this release.
"""

import asyncio
import json
import re
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from pathlib import Path
from typing import Final

import httpx

from tests.conformance.child import child
from tests.conformance.suite import _BIN, _HOME, _env, install
from tests.conftest import run_gateway
from tests.peers.person import Person, Program

_PAGE: Final = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
_SECONDS: Final = 120.0
_INDEX: Final = str(_HOME / "dist" / "index.js")
_SERVER_SCENARIOS: Final = ("authorization-server-metadata-endpoint", "authorization-code-grant")
_CLIENT_SCENARIOS: Final = {
    "auth/client-credentials-basic": {
        "authorization-server-metadata",
        "token-request",
        "client-credentials-basic-auth",
        "valid-bearer-token",
    },
    "auth/client-credentials-jwt": {
        "authorization-server-metadata",
        "token-request",
        "client-credentials-jwt-verified",
        "valid-bearer-token",
    },
}
"""Scenario -> checks that must be among those passed: one that was never made would not be missed otherwise."""


async def main() -> int:
    await install()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gatehouse-authorization-") as name:
        folder = Path(name)
        wrong += await _server(folder)
        for scenario, wanted in _CLIENT_SCENARIOS.items():
            wrong += await _client(scenario, wanted, folder / scenario)
    for complaint in wrong:
        print(f"✗ {complaint}")
    if not wrong:
        print("✓ The authorization server and the gateway's own client pass.")
    return 1 if wrong else 0


async def _server(folder: Path) -> list[str]:
    async with run_gateway(folder, backends={"core": {"module": "backends.core"}}) as gateway:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = str(found.getsockname()[1])
        program = await Program.register(gateway.base, f"http://127.0.0.1:{port}/callback")
        person = Person(code=await gateway.house.identity.sign_in_code())
        asked = ("--url", gateway.base, "--client-id", program.id, "--resource", gateway.url, "-p", port)
        node = (str(_BIN / "node"), _INDEX, "authorization", *asked)
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


async def _client(scenario: str, wanted: set[str], out: Path) -> list[str]:
    asked = ("--command", f"{sys.executable} -m tests.conformance.through", "--scenario", scenario, "--force")
    version = ("--spec-version", "2026-07-28", "--timeout", "90000", "--output-dir", str(out))
    async with child(
        str(_BIN / "node"), _INDEX, "client", *asked, *version, env=_env(), stdout=PIPE, stderr=STDOUT
    ) as node:
        said, _ = await node.communicate()
    checks = [each for file in out.glob("**/checks.json") for each in json.loads(file.read_bytes())]
    tally = Counter(each["status"] for each in checks)
    print(f"{scenario}: {tally['SUCCESS']} checks passed, {tally['FAILURE']} failed, {tally['WARNING']} warned")
    passed = {each["id"] for each in checks if each["status"] == "SUCCESS"}
    if node.returncode == 0 and tally["FAILURE"] == 0 and wanted <= passed:
        return []
    return [f"{scenario}: not passed: {', '.join(sorted(wanted - passed))}\n{said.decode(errors='replace')}"]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
