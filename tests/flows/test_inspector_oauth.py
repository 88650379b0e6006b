"""The MCP Inspector with nothing but the address: it registers, has a person sign in, and calls, in both eras."""

import asyncio
import json
import os
import pty
import re
import socket
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.peers import npm
from tests.peers.oauth_flow import BrowserUser

BACKENDS = {"lab": {"module": "tests.flows.fixtures.writer"}}
FREE = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute"}
_PAGE = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
AUTH_REQUIRED = 3


@contextmanager
def terminal() -> Iterator[int]:
    """It asks nobody who is not at a terminal."""
    ours, its = pty.openpty()
    try:
        yield its
    finally:
        os.close(ours)
        os.close(its)


@asynccontextmanager
async def inspector(url: str, era: str, home: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Its command line, calling the tool that writes."""
    program = npm.install_package(npm.INSPECTOR) / "node_modules" / ".bin" / "mcp-inspector"
    call = ("--method", "tools/call", "--tool-name", "lab_save", "--tool-arg", "text=x", "--format", "json")
    reach = ("--cli", url, "--transport", "http", "--protocol-era", era)
    with terminal() as stdin:
        process = await asyncio.create_subprocess_exec(
            *(str(npm.NODE), str(program), *reach, *more, *call),
            env=npm.environment(MCP_INSPECTOR_SECRET_STORE="memory", HOME=str(home)),
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            async with asyncio.timeout(60):
                yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _callback() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"http://127.0.0.1:{found.getsockname()[1]}/oauth/callback"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_registers_signs_in_and_calls(start: Any, tmp_path: Path, era: str) -> None:
    async with start(backends=BACKENDS, auth=FREE) as gateway:
        person = BrowserUser(code=await gateway.house.identity.sign_in_code())
        async with inspector(gateway.url, era, tmp_path, "--callback-url", _callback()) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = ""
            while line := (await process.stderr.readline()).decode():
                said += line
                if (page := _PAGE.search(line)) is not None:
                    told = await person.visit(page[0])
                    async with httpx.AsyncClient(verify=False, trust_env=False) as browser:
                        await browser.get(told.pop("to"), params=told)
            answer = await process.stdout.read()
            assert await process.wait() == 0, said
        assert json.loads(answer)["result"]["structuredContent"] == {"result": "saved x"}
        assert any("Allow MCP Inspector?" in page.text for page in person.pages), [page.text for page in person.pages]
        # Nothing but its own token opened the door.
        registered = [client for client in await _clients(gateway) if client.startswith("gthc_")]
        assert len(registered) == 1
        spoke = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
        assert [line["principal"] for line in spoke if line.get("target") == "lab.save"] == ["default/user:owner"]


async def test_the_inspector_is_told_that_it_must_sign_in(start: Any, tmp_path: Path) -> None:
    async with (
        start(backends=BACKENDS, auth=FREE) as gateway,
        inspector(gateway.url, "modern", tmp_path, "--stored-auth-only") as process,
    ):
        _, complaint = await process.communicate()
    assert process.returncode == AUTH_REQUIRED
    assert json.loads(complaint.splitlines()[-1])["error"]["code"] == "auth_required"


async def _clients(gateway: Any) -> list[str]:
    async with gateway.house.database.reading() as connection:
        rows = await connection.exec_driver_sql("SELECT id FROM oauth_clients")
        return [row.id for row in rows]
