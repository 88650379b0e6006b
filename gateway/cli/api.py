"""Questions to the operator's API of a running gateway."""

from typing import Any, Final

import httpx

from gateway.cli.failure import FAILED, UNAUTHENTICATED, UNREACHABLE, Failure

_TIMEOUT: Final = httpx.Timeout(10, connect=5)


def ask(url: str, token: str | None, path: str, what: str) -> Any:
    """What the gateway at that address answers to `GET /api/v1/PATH`. Raises `Failure`."""
    address = f"{url.partition('/mcp')[0].rstrip('/')}/api/v1/{path}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(address, headers=headers, timeout=_TIMEOUT, trust_env=False)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        raise Failure(f"cannot reach {address}: {exc}; check --url", code=UNREACHABLE) from exc
    match answer.status_code:
        case 200:
            return answer.json()
        case 401:
            raise Failure(f"{address} wants a token; give --token or set GATEHOUSE_TOKEN", code=UNAUTHENTICATED)
        case 403:
            made = "gatehouse key create --subject NAME --scope mcp:admin"
            raise Failure(f"this token may not see the {what}; `{made}` makes one that may", code=UNAUTHENTICATED)
        case status:
            raise Failure(f"{address} answered with HTTP {status}; check --url", code=FAILED)
