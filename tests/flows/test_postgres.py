"""The whole gateway on PostgreSQL: keys, sessions and the modules' own tables."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
from typer.testing import CliRunner

from gateway.cli.main import app
from tests.conftest import Running

Start = Callable[..., AbstractAsyncContextManager[Running]]
BACKENDS = {"core": {"module": "backends.core"}, "workflow": {"module": "backends.workflow"}}


async def test_two_tenants_keep_their_runs_apart_in_one_database(start: Start, postgres_url: str, era: str) -> None:
    tenants = {"default": {}, "other": {}}
    async with start(database={"url": postgres_url}, backends=BACKENDS, tenants=tenants) as gateway:
        stranger = gateway.as_(await gateway.new_key("other"))
        async with gateway.client(era) as ours, stranger.client(era) as theirs:
            assert not (await ours.call_tool("core_ping", {})).is_error
            before = (await ours.read_resource("gox://runs")).contents[0].text
            assert "core.ping" in before
            assert "core.ping" not in (await theirs.read_resource("gox://runs")).contents[0].text


async def test_calls_are_audited_in_the_database_and_verified_by_command(
    start: Start, postgres_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "g.yaml"
    config.write_text(f"database: {{url: '{postgres_url}'}}\ndata_dir: {tmp_path}\n")
    async with start(database={"url": postgres_url}, backends=BACKENDS) as gateway:
        admin = await gateway.new_key(subject="op", scopes=("mcp:admin",))
        for _ in range(5):
            assert "result" in await gateway.call("core_ping")
        await gateway.house.audit.flush()
        async with httpx.AsyncClient(verify=False, headers={"authorization": f"Bearer {admin}"}) as http:
            seen = (await http.get(f"{gateway.base}/api/v1/calls", params={"target": "core."})).json()["calls"]
        assert [each["target"] for each in seen] == ["core.ping"] * 5

    def command(*words: str) -> str:
        ended = CliRunner().invoke(app, ["audit", *words, "--config", str(config)])
        assert ended.exit_code == 0, ended.output
        return ended.output

    assert await asyncio.to_thread(command, "verify") == "5 records hold\n"
    assert len((await asyncio.to_thread(command, "export", "--tenant", "default")).splitlines()) == 5
    assert await asyncio.to_thread(command, "export", "--tenant", "other") == ""
    assert not list(tmp_path.rglob("audit.db"))


def test_the_tables_are_made_by_a_command_and_once(postgres_url: str, tmp_path: Path) -> None:
    config = tmp_path / "g.yaml"
    config.write_text(
        f"database: {{url: '{postgres_url}'}}\ndata_dir: {tmp_path}\nbackends: {{core: {{module: backends.core}}}}\n"
    )
    first = CliRunner().invoke(app, ["db", "upgrade", "--config", str(config)])
    assert first.exit_code == 0, first.output
    assert "gateway: 0001_tenants" in first.output
    assert "gox: 0001_runs" in first.output
    assert "audit: 0020_chain" in first.output
    again = CliRunner().invoke(app, ["db", "upgrade", "--config", str(config)])
    assert "Nothing to do" in again.output
