"""The whole gateway on PostgreSQL: keys, sessions and the tables of the backends."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
from typer.testing import CliRunner

from gateway.cli.main import app
from tests.conftest import Running
from tests.mcp_results import text_of

Start = Callable[..., AbstractAsyncContextManager[Running]]
BACKENDS = {"core": {"module": "backends.core"}, "workflow": {"module": "backends.workflow"}}


async def test_two_tenants_do_not_see_each_others_runs_in_one_database(
    start: Start, postgres_url: str, era: str
) -> None:
    tenants = {"default": {}, "other": {}}
    async with start(database={"url": postgres_url}, backends=BACKENDS, tenants=tenants) as gateway:
        other = gateway.as_(await gateway.new_key("other"))
        async with gateway.client(era) as ours, other.client(era) as theirs:
            assert not (await ours.call_tool("core_ping", {})).is_error
            before = text_of((await ours.read_resource("gox://runs")).contents[0])
            assert "core.ping" in before
            assert "core.ping" not in text_of((await theirs.read_resource("gox://runs")).contents[0])


async def test_calls_are_audited_in_the_database_and_verified_by_the_audit_command(
    start: Start, postgres_url: str, tmp_path: Path
) -> None:
    config = tmp_path / "g.yaml"
    config.write_text(f"database: {{url: '{postgres_url}'}}\ndata_dir: {tmp_path}/data\n")
    async with start(database={"url": postgres_url}, backends=BACKENDS) as gateway:
        admin = await gateway.new_key(subject="op", scopes=("mcp:admin",))
        for _ in range(5):
            assert "result" in await gateway.call("core_ping")
        await gateway.app.audit.flush()
        async with httpx.AsyncClient(verify=False, headers={"authorization": f"Bearer {admin}"}) as http:
            seen = (await http.get(f"{gateway.base}/api/v1/calls", params={"target": "core."})).json()["calls"]
        assert [each["target"] for each in seen] == ["core.ping"] * 5

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["audit", *arguments, "--config", str(config)])
        assert done.exit_code == 0, done.output
        return done.output

    assert await asyncio.to_thread(command, "verify") == "5 records verified, 1 anchor\n"
    assert len((await asyncio.to_thread(command, "export", "--tenant", "default")).splitlines()) == 5
    assert await asyncio.to_thread(command, "export", "--tenant", "other") == ""
    assert not list(tmp_path.rglob("audit.db"))


def test_db_upgrade_creates_the_tables_once(postgres_url: str, tmp_path: Path) -> None:
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
