"""Liveness and readiness."""

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from gateway.edge.health import HealthProbes


async def unexpected(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError(f"{scope['path']} reached the routes")


async def send_request(path: str, *, draining: bool = False, method: str = "GET") -> httpx.Response:
    probes = HealthProbes(unexpected, lambda: "draining" if draining else None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(probes), base_url="http://gw") as client:
        return await client.request(method, path)


async def test_healthz_is_ok_while_draining() -> None:
    response = await send_request("/healthz", draining=True)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_readyz_is_ok_until_draining() -> None:
    response = await send_request("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})
    response = await send_request("/readyz", draining=True)
    assert (response.status_code, response.json()) == (503, {"status": "unready"})


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_responses_are_not_cacheable(path: str, method: str) -> None:
    response = await send_request(path, method=method)
    assert response.headers["cache-control"] == "no-store"
    assert (response.content == b"") is (method == "HEAD")


async def test_other_method_is_not_allowed() -> None:
    response = await send_request("/readyz", method="POST")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/healthz/", "/metrics"])
async def test_other_paths_reach_the_routes(path: str) -> None:
    with pytest.raises(AssertionError, match="reached the routes"):
        await send_request(path)
