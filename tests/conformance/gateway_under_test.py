"""The gateway as the client under test: `python -m tests.conformance.gateway_under_test URL`.

Starts a gateway with the suite's server as a backend and calls every tool through it. The suite passes the client
configuration in the environment; it becomes the gateway's settings.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from tests.conftest import run_gateway

Json = dict[str, Any]
_SECONDS: Final = 60.0


async def main(url: str) -> int:
    context: Json = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    entry: Json = {"url": url, "allow_private": True, "oauth": await _oauth_settings(url, context)}
    with tempfile.TemporaryDirectory(prefix="gatehouse-through-") as folder:
        async with run_gateway(Path(folder), backends={"suite": entry}) as gateway, asyncio.timeout(_SECONDS):
            await gateway.wait_for_tool("suite_")
            async with gateway.client() as client:
                for tool in (await client.list_tools()).tools:
                    assert not (await client.call_tool(tool.name, {})).is_error
    return 0


async def _oauth_settings(url: str, context: Json) -> Json:
    """Return the OAuth settings of the backend; the issuer comes from the server's metadata."""
    parts = urlsplit(url)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    issuer = answer.json()["authorization_servers"][0]
    credentials = {"client_secret": context.get("client_secret"), "client_key": context.get("private_key_pem")}
    return {
        "issuer": issuer,
        "client_id": context["client_id"],
        **{name: value for name, value in credentials.items() if value},
    }


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
