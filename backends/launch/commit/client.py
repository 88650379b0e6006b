"""HTTP client of an external commit service. Retries failed requests with the same idempotency key."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import httpx

from backends.launch.outbound import OutboundClients
from gateway.contract import Json
from gateway.errors import Fault, Kind

_DELAYS: Final = (1.0, 2.0, 4.0)
_TIMEOUT_SECONDS: Final = 60.0


class CommitClient:
    """Sends commit and pull request requests. Raises `COMMIT_SERVICE_ERROR` for every failure."""

    def __init__(
        self, outbound: OutboundClients, endpoint: str, token_env: str, delays: Sequence[float] = _DELAYS
    ) -> None:
        self._outbound = outbound
        self._endpoint = endpoint.rstrip("/")
        self._token_env = token_env
        self._delays = delays

    async def commit(self, request: Json) -> Json:
        return _require_field(await self._post("/v1/commit", request), "commit_sha")

    async def open_pr(self, request: Json) -> Json:
        return _require_field(await self._post("/v1/open_pr", request), "pr_url")

    async def _post(self, path: str, request: Json) -> Json:
        url = self._endpoint + path
        headers = {**self._outbound.bearer_header(self._token_env, url), "idempotency-key": request["idempotency_key"]}
        failure = "no answer"
        for delay in (0.0, *self._delays[:-1]):
            await asyncio.sleep(delay)
            try:
                response = await self._outbound.client(url).post(
                    url, json=request, headers=headers, timeout=_TIMEOUT_SECONDS
                )
            except httpx.HTTPError as exc:
                failure = type(exc).__name__
                continue
            except Fault as fault:
                raise _error(
                    "The gateway may not connect to the commit service.", fault.retryable, kind=fault.kind
                ) from fault
            if response.status_code < 500:
                return _parse_response(response)
            failure = f"HTTP {response.status_code}"
        raise _error("The commit service does not respond.", retryable=True, failure=failure)


def _parse_response(response: httpx.Response) -> Json:
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    response_body = cast("Json", body) if isinstance(body, dict) else {}
    if response.status_code not in (200, 201):
        code = str(response_body.get("code", ""))[:100]
        raise _error(
            "The commit service rejected the request.",
            retryable=response.status_code == 429,
            status=response.status_code,
            service_code=code,
        )
    return response_body


def _require_field(response_body: Json, field: str) -> Json:
    if not isinstance(response_body.get(field), str):
        raise _error("The commit service returned an invalid response.", retryable=False, missing=field)
    return response_body


def _error(message: str, retryable: bool, **details: object) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, code="COMMIT_SERVICE_ERROR", retryable=retryable, details=details)
