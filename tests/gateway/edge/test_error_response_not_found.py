"""What no plain route answers has the form of every other failure."""

import httpx

from tests.conftest import Start

OBJECT = {"kind", "code", "category", "message", "retryable", "correlation_id", "origin", "stage", "details"}

UNSERVED = [
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


async def test_every_failure_is_the_same_object(start: Start) -> None:
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        admin = await gateway.new_key(subject="op", scopes=["mcp:admin"])
        async with httpx.AsyncClient(base_url=gateway.base, headers={"authorization": f"Bearer {admin}"}) as http:
            for method, path, status, kind in UNSERVED:
                answer = await http.request(method, path)
                assert answer.status_code == status, path
                assert answer.json().keys() == {"error"}, path
                told = answer.json()["error"]
                assert told.keys() == OBJECT, path
                assert (told["kind"], told["correlation_id"]) == (kind, answer.headers["x-correlation-id"]), path
                assert answer.headers["content-type"] == "application/json"
                assert "s3cr3t" not in answer.text
                assert ("allow" in answer.headers) == (status == 405)
