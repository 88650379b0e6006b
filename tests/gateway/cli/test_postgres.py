"""Commands that open the database directly use the PostgreSQL database of the settings."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path, postgres_url: str, valkey_url: str) -> Path:
    values = {
        "server": {"port": 0},
        "backends": {"core": {"module": "backends.core"}},
        "database": {"url": postgres_url},
        "bus": {"url": valkey_url},
    }
    file = tmp_path / "gatehouse.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


# The fixture creates its database on its own event loop; the commands run theirs in a thread.
async def test_commands_use_the_postgresql_database_of_the_settings(
    run: Run, settings: Path, run_in_thread: Callable[..., Awaitable[Result]]
) -> None:
    before = await run_in_thread("doctor", "--json")
    messages = {finding["words"] for finding in json.loads(before.stdout) if finding["part"] == "database.url"}
    assert any("pending migrations" in message for message in messages)
    assert "the login is a superuser" in messages
    clocks = [finding["words"] for finding in json.loads(before.stdout) if finding["part"] == "clock"]
    assert clocks == ["PostgreSQL agrees with this machine", "Redis agrees with this machine"]
    # The checks changed nothing.
    assert (await run_in_thread("doctor", "--json")).stdout == before.stdout

    for command in (
        ("db", "upgrade"),
        ("tenant", "add", "acme"),
        ("user", "add", "alice", "--tenant", "acme", "--password-stdin"),
        ("key", "create", "--tenant", "acme", "--subject", "alice"),
        ("client", "add", "--service", "nightly"),
        ("signing", "rotate"),
    ):
        ended = await run_in_thread(*command, input="correct horse battery\n")
        assert ended.exit_code == 0, (command, ended.stderr)
    users = json.loads((await run_in_thread("user", "list", "--json")).stdout)
    assert [(user["tenant"], user["subject"]) for user in users] == [("acme", "alice")]
    after = json.loads((await run_in_thread("doctor", "--json")).stdout)
    assert "match secrets/signing" in {finding["words"] for finding in after}
    # No SQLite file was created.
    assert not (settings.parent / ".gatehouse" / "gatehouse.db").exists()
