"""The whole gateway on PostgreSQL: keys, sessions and the modules' own tables."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

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


def test_the_tables_are_made_by_a_command_and_once(postgres_url: str, tmp_path: Path) -> None:
    config = tmp_path / "g.yaml"
    config.write_text(
        f"database: {{url: '{postgres_url}'}}\ndata_dir: {tmp_path}\nbackends: {{core: {{module: backends.core}}}}\n"
    )
    first = CliRunner().invoke(app, ["db", "upgrade", "--config", str(config)])
    assert first.exit_code == 0, first.output
    assert "gateway: 0001_tenants" in first.output
    assert "gox: 0001_runs" in first.output
    again = CliRunner().invoke(app, ["db", "upgrade", "--config", str(config)])
    assert "Nothing to do" in again.output
