"""`gatehouse accounts` and `gatehouse vault` against a running gateway."""

import asyncio
import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from tests.flows.process import COMMAND, environment, run, write_settings
from tests.peers.account_server import AccountServer
from tests.peers.account_user import add_user


async def _command(folder: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(run, folder, *arguments, **environ)


async def test_commands_list_connect_and_disconnect_and_the_vault_rotates_while_the_gateway_runs(
    start: Any, tmp_path: Path
) -> None:
    async with AccountServer().running() as server:
        entry = {"url": server.url, "allow_private": True, "account": {"oauth": {}}}
        async with start(backends={"hub": entry}) as gateway:
            variables = {"GATEHOUSE_URL": gateway.url, "GATEHOUSE_TOKEN": gateway.key}
            listed = await _command(tmp_path, "accounts", "list", "--json", **variables)
            assert [each["state"] for each in json.loads(listed.stdout)] == ["missing"], listed.stderr
            user = await add_user(gateway, "default", "alice")
            process = await asyncio.create_subprocess_exec(
                str(COMMAND), "accounts", "connect", "hub", cwd=tmp_path, env=environment(**variables),
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            lines = [(await process.stdout.readline()).decode() for _ in range(3)]
            await user.connect(lines[2].strip())
            rest = await process.stdout.read()
            assert b"hub is connected." in rest
            assert await process.wait() == 0

            settings = write_settings(tmp_path, data_dir=str(tmp_path / "data"))
            before = _sealed(tmp_path)
            rotated = await _command(tmp_path, "vault", "rotate", "--config", str(settings), "--json")
            assert json.loads(rotated.stdout) == {"sealed": {"default": 1}}, rotated.stderr
            assert _sealed(tmp_path) != before
            gateway.app.accounts.backends.get("hub").credential.on_change(None)  # nothing is cached any more
            answer = await gateway.call("hub_whoami")
            assert answer["result"]["content"][0]["text"] == "octocat"

            gone = await _command(tmp_path, "accounts", "disconnect", "hub", **variables)
            assert gone.stdout == "hub is disconnected.\n", gone.stderr
            again = await _command(tmp_path, "accounts", "disconnect", "hub", **variables)
            assert again.returncode == 1
            assert "There is no such account." in again.stderr


def _sealed(folder: Path) -> str:
    with sqlite3.connect(os.fspath(folder / "data" / "gatehouse.db")) as database:
        return repr(database.execute("SELECT access, refresh FROM accounts").fetchall())
