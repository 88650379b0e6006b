"""`gatehouse stdio` as the client under test: `python -m tests.conformance.stdio_under_test URL`.

Starts the real command with an empty data folder and a browser that completes the sign-in. The SDK's client connects
to it over stdio and calls every tool.
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
"""The client metadata document that the suite expects."""


async def main(url: str) -> int:
    modern = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] >= "2026-07-28"
    with tempfile.TemporaryDirectory(prefix="gatehouse-bridged-") as folder:
        server = StdioServerParameters(
            command=str(COMMAND), args=["stdio", "--url", url], env=_user_environment(Path(folder))
        )
        mode = "2026-07-28" if modern else "legacy"
        async with asyncio.timeout(_SECONDS), Client(stdio_client(server), mode=mode, cache=None) as client:
            for tool in (await client.list_tools()).tools:
                assert not (await client.call_tool(tool.name, {})).is_error
    return 0


def _user_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the command, with the client configuration from the suite."""
    variables = {"XDG_DATA_HOME": str(folder), "BROWSER": BROWSER}
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "client_id" in context:
        variables |= {"GATEHOUSE_CLIENT_ID": context["client_id"], "GATEHOUSE_CLIENT_SECRET": context["client_secret"]}
    if os.environ["MCP_CONFORMANCE_SCENARIO"] == "auth/basic-cimd":
        variables["GATEHOUSE_CLIENT_DOCUMENT"] = _DOCUMENT
    return environment(**variables)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
