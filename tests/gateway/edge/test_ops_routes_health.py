"""Liveness and readiness."""

import httpx
import pytest
from fastapi import FastAPI

from gateway.edge.ops_routes import health_router


async def send_request(
    path: str, reason: str | None, *, show_reason: bool = False, method: str = "GET"
) -> httpx.Response:
    app = FastAPI()
    app.include_router(health_router(lambda: reason, show_reason=show_reason))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gw") as client:
        return await client.request(method, path)


async def test_healthz_is_ok_while_not_ready() -> None:
    response = await send_request("/healthz", "draining")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_readyz_is_ok_when_ready() -> None:
    response = await send_request("/readyz", None)
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_readyz_shows_the_reason_only_if_enabled() -> None:
    response = await send_request("/readyz", "draining")
    assert (response.status_code, response.json()) == (503, {"status": "unready"})
    response = await send_request("/readyz", "draining", show_reason=True)
    assert response.json() == {"status": "unready", "reason": "draining"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_responses_are_not_cacheable(path: str, method: str) -> None:
    assert (await send_request(path, None, method=method)).headers["cache-control"] == "no-store"
