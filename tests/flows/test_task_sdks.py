"""Task clients of the SDKs 1.x (2025-11-25) work through the gateway, against task servers of the same SDK."""

import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Running, Start
from tests.peers import npm
from tests.peers.python_v1 import install_python_sdk
from tests.peers.task_peers import run_client

Json = dict[str, Any]
PEERS = Path(npm.__file__).parent
SERVED = {"long": ["peer_research", {"topic": "moss"}], "endless": ["peer_endless", {}], "asking": ["peer_confirm", {}]}


def _server_command(sdk: str) -> list[str]:
    if sdk == "python":
        return [str(install_python_sdk()), str(PEERS / "task_server_v1.py")]
    return [str(npm.NODE), str(PEERS / "task_server_v1.mjs"), str(npm.install_package(npm.SDK))]


@contextmanager
def _listening(command: list[str], port: int) -> Iterator[str]:
    process = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    yield f"http://127.0.0.1:{port}/mcp"
                    return
        raise RuntimeError(process.stderr.read().decode() if process.stderr else "")
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(params=["python", "typescript"])
def sdk(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def gateway(sdk: str, start: Start) -> AsyncIterator[Running]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    with _listening(_server_command(sdk), port) as url:
        async with start(backends={"peer": {"url": url, "allow_private": True}}) as running:
            await running.wait_for_tool("peer_research")
            yield running


async def test_task_client_and_task_server_of_one_sdk_work_through_the_gateway(gateway: Running, sdk: str) -> None:
    seen = await run_client(sdk, gateway.url, gateway.key, {**SERVED, "sync": ["peer_plain", {}]})
    assert seen["capability"]["requests"]["tools"]["call"] is not None
    assert seen["support"]["peer_research"] == "optional"
    assert seen["support"]["peer_plain"] is None
    assert seen["created"] == "working"
    assert len(seen["id"]) <= 512
    assert "report" in seen["result"]["content"][0]["text"]
    assert seen["result"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": seen["id"]}
    assert seen["id"] in seen["listed"]
    assert seen["cancelled"] == "cancelled"
    assert seen["asked"] == ["Are you sure?"]
    assert seen["answered"].startswith("sure: ")
    assert seen["sync"] == "plain"
    assert seen["unknown"] == -32602


async def test_tool_that_requires_a_task_runs_to_its_end_for_a_client_that_asks_for_none(gateway: Running) -> None:
    result = (await gateway.call("peer_research", {"topic": "moss"}))["result"]
    assert "report" in result["content"][0]["text"]


async def test_another_principal_cannot_use_an_upstream_task(gateway: Running, sdk: str) -> None:
    mine = await run_client(sdk, gateway.url, gateway.key, {"long": SERVED["long"]})
    theirs = await run_client(sdk, gateway.url, await gateway.new_key(subject="mallory"), {"long": SERVED["long"]})
    assert mine["id"] not in theirs["listed"]
