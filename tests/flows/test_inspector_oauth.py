"""The MCP Inspector with only the URL: it registers, lets a user sign in, and calls a tool, in both eras."""

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
from tests.peers.company import CompanyUser, company_provider
from tests.peers.oauth_flow import BrowserUser

BACKENDS = {"lab": {"module": "tests.flows.fixtures.writer"}}
RATES = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute"}
_PAGE = re.compile(r"http://127\.0\.0\.1:\d+/oauth/authorize\?\S+")
AUTH_REQUIRED = 3


@contextmanager
def terminal() -> Iterator[int]:
    """A pseudo-terminal: the Inspector starts the sign-in only when its input is a terminal."""
    master, slave = pty.openpty()
    try:
        yield slave
    finally:
        os.close(master)
        os.close(slave)


@asynccontextmanager
async def inspector(url: str, era: str, home: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the Inspector's command line with a call of the writing tool."""
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
    async with start(backends=BACKENDS, auth=RATES) as gateway:
        user = BrowserUser(code=await gateway.app.identity.create_sign_in_code())
        answer = await _call_by_inspector(gateway, user, tmp_path, era)
        assert json.loads(answer)["result"]["structuredContent"] == {"result": "saved x"}
        assert any("Allow MCP Inspector?" in page.text for page in user.pages), [page.text for page in user.pages]
        # The call was authenticated by the token of the registered client.
        registered = [client for client in await _clients(gateway) if client.startswith("gthc_")]
        assert len(registered) == 1
        lines = [json.loads(line) for line in gateway.log.getvalue().splitlines()]
        assert [line["principal"] for line in lines if line.get("target") == "lab.save"] == ["default/user:owner"]


async def _call_by_inspector(gateway: Any, user: Any, folder: Path, era: str) -> bytes:
    """Call a tool with the Inspector, sign in as the user on the page that it opens, and return its output."""
    async with inspector(gateway.url, era, folder, "--callback-url", _callback()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output = ""
        while line := (await process.stderr.readline()).decode():
            output += line
            if (page := _PAGE.search(line)) is not None:
                parameters = await user.visit(page[0])
                async with httpx.AsyncClient(verify=False, trust_env=False) as browser:
                    await browser.get(parameters.pop("to"), params=parameters)
        answer = await process.stdout.read()
        assert await process.wait() == 0, output
    return answer


@pytest.mark.parametrize("variant", ["strict", "short"])
async def test_the_inspector_signs_in_at_the_companys_provider(start: Any, tmp_path: Path, variant: str) -> None:
    options: dict[str, Any] = {variant: True}
    with company_provider(**options) as provider:
        entry = provider.settings(rules=[{"group": "*"}])
        auth = {**RATES, "providers": {"company": entry}}
        async with start(backends=BACKENDS, auth=auth, server={"port": provider.port}) as gateway:
            user = CompanyUser(until="/oauth/callback")
            answer = await _call_by_inspector(gateway, user, tmp_path, "modern")
    assert json.loads(answer)["result"]["structuredContent"] == {"result": "saved x"}
    assert "Allow MCP Inspector?" in user.pages[0].text


async def test_inspector_without_credentials_reports_that_sign_in_is_required(start: Any, tmp_path: Path) -> None:
    async with (
        start(backends=BACKENDS, auth=RATES) as gateway,
        inspector(gateway.url, "modern", tmp_path, "--stored-auth-only") as process,
    ):
        _, errors = await process.communicate()
    assert process.returncode == AUTH_REQUIRED
    assert json.loads(errors.splitlines()[-1])["error"]["code"] == "auth_required"


async def _clients(gateway: Any) -> list[str]:
    async with gateway.app.database.reading() as connection:
        rows = await connection.exec_driver_sql("SELECT id FROM oauth_clients")
        return [row.id for row in rows]
