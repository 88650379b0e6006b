"""`python -m tests.conformance.gateway_under_test URL`: the suite's client under test, a gateway in front of the suite's server.

What the suite tells its clients comes in the environment. The gateway is given what an operator would write into its
settings; then somebody calls every tool that it shows.
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
    given: Json = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    entry: Json = {"url": url, "allow_private": True, "oauth": await _operator_writes(url, given)}
    with tempfile.TemporaryDirectory(prefix="gatehouse-through-") as folder:
        async with run_gateway(Path(folder), backends={"suite": entry}) as gateway, asyncio.timeout(_SECONDS):
            await gateway.listed("suite_")
            async with gateway.client() as client:
                for tool in (await client.list_tools()).tools:
                    assert not (await client.call_tool(tool.name, {})).is_error
    return 0


async def _operator_writes(url: str, given: Json) -> Json:
    """The issuer that the server's own metadata name."""
    parts = urlsplit(url)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    issuer = answer.json()["authorization_servers"][0]
    written = {"client_secret": given.get("client_secret"), "client_key": given.get("private_key_pem")}
    return {"issuer": issuer, "client_id": given["client_id"], **{name: it for name, it in written.items() if it}}


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
