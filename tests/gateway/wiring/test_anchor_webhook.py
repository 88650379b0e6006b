"""The ends of the audit log's hash chains are posted to `audit.anchor_url`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.state.audit_anchors import AnchorFiles
from gateway.wiring.anchor_webhook import AnchorWebhook
from tests.gateway.state.audit_storage import KEY, AuditStorage
from tests.gateway.state.test_audit import record
from tests.in_process_server import InProcessServer


class Receiver:
    """A server that keeps what it receives."""

    def __init__(self, status: int = 204) -> None:
        self.received: asyncio.Queue[Any] = asyncio.Queue()
        self._status = status

    async def _receive(self, request: Request) -> Response:
        self.received.put_nowait(await request.json())
        return Response(status_code=self._status)

    def config(self) -> uvicorn.Config:
        app = Starlette(routes=[Route("/anchors", self._receive, methods=["POST"])])
        return uvicorn.Config(app, port=0, log_config=None, lifespan="off")


async def write_three(folder: Path, port: int) -> list[asyncio.Task[None]]:
    """Write three records and close the log, which publishes its last anchor."""
    tasks: list[asyncio.Task[None]] = []
    log = await AuditStorage(folder, None).open_log()
    webhook = AnchorWebhook(
        f"http://127.0.0.1:{port}/anchors", log, lambda work: tasks.append(asyncio.create_task(work))
    )
    for number in range(3):
        log.put(record(number))
    await log.close()
    async with asyncio.timeout(10):
        while not tasks:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    await webhook.close()
    return tasks


async def test_anchor_is_posted_and_proves_how_many_records_there_were(tmp_path: Path) -> None:
    receiver = Receiver()
    async with InProcessServer(receiver.config()).running() as port:
        await write_three(tmp_path, port)
    posted = receiver.received.get_nowait()["anchor"]
    evidence, problems = AnchorFiles(tmp_path / "elsewhere", KEY).read([posted])
    assert problems == []
    assert [(each.number, list(each.heads)) for each in evidence.anchors] == [(3, ["default"])]


@pytest.mark.parametrize("status", [None, 500])
async def test_failure_to_post_an_anchor_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int | None
) -> None:
    if status is None:
        await write_three(tmp_path, 9)
    else:
        async with InProcessServer(Receiver(status).config()).running() as port:
            await write_three(tmp_path, port)
    assert "an anchor" in caplog.text
