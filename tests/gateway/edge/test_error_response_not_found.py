"""Errors of the plain HTTP routes have the standard error object."""

import httpx

from tests.conftest import Start

ERROR_MEMBERS = {"kind", "code", "category", "message", "retryable", "correlation_id", "origin", "stage", "details"}

REQUESTS = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/api/v1/nope", 404, "not_found"),
    ("GET", "/oauth/nope", 404, "not_found"),
    ("GET", "/.well-known/nope", 404, "not_found"),
    ("GET", "/.well-known/oauth-protected-resource/nope", 404, "not_found"),
    ("GET", "/console/nope", 404, "not_found"),
    ("POST", "/v1/bridge/nope", 404, "not_found"),
    ("PUT", "/healthz", 405, "invalid_input"),
    ("GET", "/api/v1/traffic?minutes=s3cr3t", 400, "invalid_input"),
]


async def test_every_error_response_has_the_same_members(start: Start) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        async with httpx.AsyncClient(base_url=gateway.base, headers={"authorization": f"Bearer {admin}"}) as http:
            for method, path, status, kind in REQUESTS:
                response = await http.request(method, path)
                assert response.status_code == status, path
                assert response.json().keys() == {"error"}, path
                body = response.json()["error"]
                assert body.keys() == ERROR_MEMBERS, path
                assert (body["kind"], body["correlation_id"]) == (kind, response.headers["x-correlation-id"]), path
                assert response.headers["content-type"] == "application/json"
                assert "s3cr3t" not in response.text
                assert ("allow" in response.headers) == (status == 405)
