"""One tenant's failing calls to a shared remote server do not reject the calls of another tenant."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from gateway.upstream.breaker import FAILURE_THRESHOLD
from tests.conftest import Running
from tests.in_process_server import InProcessServer

SLOW = """
import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("slow")


@server.tool()
async def wait() -> str:
    await asyncio.sleep(3600)
    return "never"


@server.tool()
def ping() -> str:
    return "pong"
"""


@asynccontextmanager
async def two_tenants(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str | None = None
) -> AsyncIterator[tuple[Running, Running]]:
    """Gateways of two tenants in front of one server: at `url`, or a second gateway with the module above."""
    (folder / "slow_server.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(folder))
    async with run(folder / "far", backends={"slow": {"module": "slow_server"}}) as far:
        headers = {"Authorization": f"Bearer {far.key}"}
        entry = {"url": url or f"{far.base}/mcp/slow", "allow_private": True, "headers": headers}
        entry["timeouts"] = {"wait": 0.2}
        async with run(folder / "near", backends={"far": entry}, tenants={"default": {}, "other": {}}) as near:
            await near.wait_for_tool("far_ping")
            yield near, near.as_(await near.new_key("other"))


async def is_answered(gateway: Running) -> bool:
    result = (await gateway.call("far_ping"))["result"]
    return not result.get("isError") and result["content"][0]["text"] == "pong"


async def error_kind(gateway: Running, tool: str) -> str:
    return (await gateway.call(tool))["result"]["_meta"]["gatehouse/error"]["kind"]


async def test_threat_41_timeouts_of_one_tenant_reject_no_call_of_another(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_tenants(run, tmp_path, monkeypatch) as (attacker, victim):
        kinds = [await error_kind(attacker, "far_wait") for _ in range(FAILURE_THRESHOLD)]
        assert kinds == ["timeout"] * FAILURE_THRESHOLD
        assert await error_kind(attacker, "far_ping") == "unavailable"
        assert [await is_answered(victim) for _ in range(20)] == [True] * 20


@asynccontextmanager
async def redirecting_proxy(far_url: str, token: str) -> AsyncIterator[str]:
    """A server that answers calls of `wait` with a redirect and passes everything else on."""

    async def serve(request: Request) -> Response:
        body = await request.body()
        if b'"wait"' in body:
            return RedirectResponse("/elsewhere")
        kept = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        async with httpx.AsyncClient(verify=False) as http:
            answer = await http.request(
                request.method, far_url, content=body, headers={**kept, "authorization": f"Bearer {token}"}
            )
        if not answer.content:
            return Response(status_code=answer.status_code)
        return JSONResponse(answer.json(), answer.status_code)

    app = Starlette(routes=[Route("/mcp", serve, methods=["GET", "POST", "DELETE"])])
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")
    async with InProcessServer(config).running() as port:
        yield f"http://127.0.0.1:{port}/mcp"


async def test_threat_41_redirects_for_one_tenant_reject_no_call_of_another(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_server.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    async with (
        run(tmp_path / "first", backends={"slow": {"module": "slow_server"}}) as far,
        redirecting_proxy(f"{far.base}/mcp/slow", far.key) as url,
        two_tenants(run, tmp_path, monkeypatch, url) as (attacker, victim),
    ):
        for _ in range(FAILURE_THRESHOLD):
            assert await error_kind(attacker, "far_wait") == "unavailable"
        assert await error_kind(attacker, "far_ping") == "unavailable"
        assert [await is_answered(victim) for _ in range(20)] == [True] * 20
