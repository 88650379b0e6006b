from typing import Any

import pytest
from starlette.requests import Request

from gateway.edge.ip_rate_limit import IpRateLimiter
from gateway.errors import Fault, Kind


def a_request(path: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": [],
        "query_string": b"",
        "app": None,
    }
    return Request({**scope, "client": ("192.0.2.1", 1)})


async def test_each_gate_has_its_own_rate() -> None:
    limiter = IpRateLimiter(lambda request: request.client.host if request.client else "")
    narrow, wide = limiter.gate("narrow", "1/minute"), limiter.gate("wide", "3/minute")
    for _ in range(3):
        await wide(a_request("/wide"))
    await narrow(a_request("/narrow"))
    for gate in (narrow, wide):
        with pytest.raises(Fault) as caught:
            await gate(a_request("/again"))
        assert caught.value.kind is Kind.RATE_LIMITED
