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
from tests.peers.account_user import add_user

Json = dict[str, Any]
_SECONDS: Final = 60.0
_CONNECTED: Final = ("auth/dpop", "auth/dpop-nonce")
"""Scenarios in which a user connects an account."""


async def main(url: str) -> int:
    context: Json = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    with tempfile.TemporaryDirectory(prefix="gatehouse-through-") as folder:
        entry: Json = {"url": url, "allow_private": True, **await _credentials(scenario, url, context, Path(folder))}
        async with run_gateway(Path(folder), backends={"suite": entry}) as gateway, asyncio.timeout(_SECONDS):
            if scenario in _CONNECTED:
                user = await add_user(gateway, "default", "alice")
                page = await user.connect(f"{gateway.base}/accounts/connect/suite")
                assert "suite is connected" in page.text, page.text
            await gateway.wait_for_tool("suite_")
            async with gateway.client() as client:
                for tool in (await client.list_tools()).tools:
                    assert not (await client.call_tool(tool.name, {})).is_error
    return 0


async def _credentials(scenario: str, url: str, context: Json, folder: Path) -> Json:
    """Return the credentials of the backend for this scenario."""
    if scenario in _CONNECTED:
        return {"account": {"oauth": {}}}
    token = folder / "identity-token"
    if scenario == "auth/wif-jwt-bearer":
        token.write_text(context["valid_jwt"])
        issuer = await _issuer(url)
        return {"oauth": {"issuer": issuer, "client_id": context["client_id"], "assertion_file": str(token)}}
    if scenario == "auth/enterprise-managed-authorization":
        token.write_text(context["idp_id_token"])
        assertion = {
            "provider": context["idp_issuer"],
            "provider_client_id": context["idp_client_id"],
            "subject_token_file": str(token),
            "issuer": await _issuer(url),
            "client_id": context["client_id"],
            "client_secret": context["client_secret"],
        }
        return {"account": {"id_jag": assertion}}
    return {"oauth": await _oauth_settings(url, context)}


async def _oauth_settings(url: str, context: Json) -> Json:
    """Return the OAuth settings of the backend."""
    credentials = {"client_secret": context.get("client_secret"), "client_key": context.get("private_key_pem")}
    return {
        "issuer": await _issuer(url),
        "client_id": context["client_id"],
        **{name: value for name, value in credentials.items() if value},
    }


async def _issuer(url: str) -> str:
    """Return the authorization server that the server's metadata name."""
    parts = urlsplit(url)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    return answer.json()["authorization_servers"][0]


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
