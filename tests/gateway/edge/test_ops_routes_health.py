"""Liveness and readiness."""

import httpx
import pytest
from fastapi import FastAPI

from gateway.edge.ops_routes import health_router


async def ask(path: str, reason: str | None, *, show_reason: bool = False, method: str = "GET") -> httpx.Response:
    app = FastAPI()
    app.include_router(health_router(lambda: reason, show_reason=show_reason))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gw") as client:
        return await client.request(method, path)


async def test_alive_even_when_not_ready() -> None:
    answer = await ask("/healthz", "draining")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready() -> None:
    answer = await ask("/readyz", None)
    assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


async def test_the_reason_is_shown_only_when_told_so() -> None:
    answer = await ask("/readyz", "draining")
    assert (answer.status_code, answer.json()) == (503, {"status": "unready"})
    answer = await ask("/readyz", "draining", show_reason=True)
    assert answer.json() == {"status": "unready", "reason": "draining"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_no_answer_is_stored(path: str, method: str) -> None:
    assert (await ask(path, None, method=method)).headers["cache-control"] == "no-store"
