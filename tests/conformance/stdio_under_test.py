"""`python -m tests.conformance.stdio_under_test URL`: the suite's client under test, a person's `gatehouse stdio`.

The real command in a process of its own, with an empty data folder and a browser that follows where it is sent. The
SDK's client speaks to it by lines, as one does that can only start a program, and calls every tool that it is shown.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.flows.process import COMMAND, environment
from tests.peers.sign_in_browser import BROWSER

_SECONDS: Final = 60.0
_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""What the suite has its clients call themselves where they may have a document."""


async def main(url: str) -> int:
    modern = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] >= "2026-07-28"
    with tempfile.TemporaryDirectory(prefix="gatehouse-bridged-") as folder:
        program = StdioServerParameters(command=str(COMMAND), args=["stdio", "--url", url], env=_user(Path(folder)))
        mode = "2026-07-28" if modern else "legacy"
        async with asyncio.timeout(_SECONDS), Client(stdio_client(program), mode=mode, cache=None) as client:
            for tool in (await client.list_tools()).tools:
                assert not (await client.call_tool(tool.name, {})).is_error
    return 0


def _user(folder: Path) -> dict[str, str]:
    """The environment of a user who was told what the suite tells its clients."""
    told = {"XDG_DATA_HOME": str(folder), "BROWSER": BROWSER}
    given: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "client_id" in given:
        told |= {"GATEHOUSE_CLIENT_ID": given["client_id"], "GATEHOUSE_CLIENT_SECRET": given["client_secret"]}
    if os.environ["MCP_CONFORMANCE_SCENARIO"] == "auth/basic-cimd":
        told["GATEHOUSE_CLIENT_DOCUMENT"] = _DOCUMENT
    return environment(**told)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
