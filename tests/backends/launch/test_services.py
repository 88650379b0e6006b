"""Runs with an external commit service and telemetry endpoint, through the gateway."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from tests.in_process_server import InProcessServer

Json = dict[str, Any]


class ExternalServices:
    """A commit service and a telemetry endpoint. Telemetry requests fail until `telemetry_works` is set."""

    def __init__(self) -> None:
        self.requests: dict[str, list[Json]] = {}
        self.telemetry_works = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"]
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        status, answer = self._answer(path, json.loads(body), headers)
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, path: str, body: Json, headers: dict[str, str]) -> tuple[int, Json]:
        if path.startswith("/api/v1/runs"):
            if not self.telemetry_works:
                return 500, {}
        elif headers.get("authorization") != "Bearer secret-token":
            return 401, {"code": "AUTH_INVALID_TOKEN"}
        self.requests.setdefault(path, []).append(body)
        return 200, {"commit_sha": "c" * 40, "pr_url": "https://example.org/pull/7", "pr_number": 7}


@asynccontextmanager
async def _serve(app: Any) -> AsyncIterator[str]:
    bound = socket.create_server(("127.0.0.1", 0))
    server = InProcessServer(uvicorn.Config(app, lifespan="off", log_level="error"))
    async with server.running(bound) as port:
        yield f"http://127.0.0.1:{port}"


async def test_external_services_receive_the_commit_and_buffered_telemetry(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCH_TEST_TOKEN", "secret-token")
    services = ExternalServices()
    async with _serve(services) as url:
        options = {
            "commit_service": "http",
            "telemetry": "http",
            "endpoints": [url],
            "token_envs": ["LAUNCH_TEST_TOKEN"],
        }
        async with launch(**options) as launcher:
            config = launcher.repositories.config(required_sections=["docs"])
            config["commit_service"] |= {"endpoint_url": url, "github_token_env": "LAUNCH_TEST_TOKEN"}
            config["telemetry"] = {"endpoint_url": url, "project": "test"}
            run_id = (await launcher.call("start_run", run_config=config))["run_id"]
            await launcher.until(run_id, "READY_FOR_PR")
            outbox = launcher.folder(run_id) / "telemetry_outbox.jsonl"
            assert outbox.read_text().count("orchestrator_node") >= 8  # the failing endpoint loses no records
            services.telemetry_works = True
            pull = await launcher.call("open_pr", run_id=run_id)
            assert (pull["pr_url"], pull["commit_sha"]) == ("https://example.org/pull/7", "c" * 40)
            commit, requests = services.requests["/v1/commit"][0], services.requests["/v1/open_pr"][0]
            assert commit["branch_name"] == requests["branch_name"] == f"launch/{run_id}/3d"
            assert {patch["type"] for patch in commit["patch_bundle"]["patches"]} == {"create_file"}
            while b"orchestrator_node" in outbox.read_bytes():
                await launcher.pause()
            sent = services.requests["/api/v1/runs"]
            assert {"mcp_tool_call", "orchestrator_node"} <= {record["job_type"] for record in sent}
            assert all(record["run_id"] == run_id and record["context_json"]["trace_id"] for record in sent)
            assert "secret-token" not in json.dumps(sent)


async def test_run_cannot_send_a_token_that_the_operator_did_not_configure(
    launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_SECRET", "secret-token")
    services = ExternalServices()
    async with _serve(services) as url, launch(commit_service="http", endpoints=[url]) as launcher:
        config = launcher.repositories.config(required_sections=["docs"])
        config["commit_service"] |= {"endpoint_url": url, "github_token_env": "GATEHOUSE_SECRET"}
        run_id = (await launcher.call("start_run", run_config=config))["run_id"]
        await launcher.until(run_id, "READY_FOR_PR")
        refused = await launcher.call("open_pr", run_id=run_id)
        assert refused["error"]["code"] == "INVALID_INPUT"
        assert services.requests == {}
        assert (await launcher.call("get_status", run_id=run_id))["status"]["state"] == "READY_FOR_PR"
