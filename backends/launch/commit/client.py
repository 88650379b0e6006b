"""The HTTP client of a commit service elsewhere: tried again when that can help, and never twice the same work."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import httpx

from backends.launch.outbound import Outward
from gateway.contract import Json
from gateway.errors import Fault, Kind

_DELAYS: Final = (1.0, 2.0, 4.0)
_SECONDS: Final = 60.0


class CommitClient:
    def __init__(self, outward: Outward, endpoint: str, token_env: str, delays: Sequence[float] = _DELAYS) -> None:
        self._outward = outward
        self._endpoint = endpoint.rstrip("/")
        self._token_env = token_env
        self._delays = delays

    async def commit(self, request: Json) -> Json:
        return _checked(await self._post("/v1/commit", request), "commit_sha")

    async def open_pr(self, request: Json) -> Json:
        return _checked(await self._post("/v1/open_pr", request), "pr_url")

    async def _post(self, path: str, request: Json) -> Json:
        url = self._endpoint + path
        headers = {**self._outward.bearer(self._token_env, url), "idempotency-key": request["idempotency_key"]}
        failure = "no answer"
        for delay in (0.0, *self._delays[:-1]):
            await asyncio.sleep(delay)
            try:
                response = await self._outward.client(url).post(url, json=request, headers=headers, timeout=_SECONDS)
            except httpx.HTTPError as exc:
                failure = type(exc).__name__
                continue
            except Fault as fault:
                raise _error("The commit service may not be reached.", fault.retryable, kind=fault.kind) from fault
            if response.status_code < 500:
                return _answer(response)
            failure = f"HTTP {response.status_code}"
        raise _error("The commit service does not answer.", retryable=True, failure=failure)


def _answer(response: httpx.Response) -> Json:
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    answer = cast("Json", body) if isinstance(body, dict) else {}
    if response.status_code not in (200, 201):
        code = str(answer.get("code", ""))[:100]
        raise _error(
            "The commit service refused.",
            retryable=response.status_code == 429,
            status=response.status_code,
            service_code=code,
        )
    return answer


def _checked(answer: Json, wanted: str) -> Json:
    if not isinstance(answer.get(wanted), str):
        raise _error("The commit service's answer cannot be read.", retryable=False, missing=wanted)
    return answer


def _error(message: str, retryable: bool, **details: object) -> Fault:
    return Fault(Kind.UNAVAILABLE, message, code="COMMIT_SERVICE_ERROR", retryable=retryable, details=details)
