"""Commands that open the database themselves open the one that the settings name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path, postgres_url: str, valkey_url: str) -> Path:
    told = {
        "server": {"port": 0},
        "backends": {"core": {"module": "backends.core"}},
        "database": {"url": postgres_url},
        "bus": {"url": valkey_url},
    }
    file = tmp_path / "gatehouse.yaml"
    file.write_text(yaml.safe_dump(told))
    return file


# The fixture's database is made on a loop of its own, and the commands bring theirs.
async def test_every_command_works_on_the_postgresql_of_the_settings(
    run: Run, settings: Path, in_a_thread: Callable[..., Result]
) -> None:
    before = await in_a_thread("doctor", "--json")
    said = {finding["words"] for finding in json.loads(before.stdout) if finding["part"] == "database.url"}
    assert any("migrations wait" in words for words in said)
    assert "the login is a superuser" in said
    clocks = [finding["words"] for finding in json.loads(before.stdout) if finding["part"] == "clock"]
    assert clocks == ["PostgreSQL agrees with this machine", "Redis agrees with this machine"]
    # Looking made nothing.
    assert (await in_a_thread("doctor", "--json")).stdout == before.stdout

    for command in (
        ("db", "upgrade"),
        ("tenant", "add", "acme"),
        ("user", "add", "alice", "--tenant", "acme", "--password-stdin"),
        ("key", "create", "--tenant", "acme", "--subject", "alice"),
        ("client", "add", "--service", "nightly"),
        ("signing", "rotate"),
    ):
        ended = await in_a_thread(*command, input="correct horse battery\n")
        assert ended.exit_code == 0, (command, ended.stderr)
    users = json.loads((await in_a_thread("user", "list", "--json")).stdout)
    assert [(user["tenant"], user["subject"]) for user in users] == [("acme", "alice")]
    after = json.loads((await in_a_thread("doctor", "--json")).stdout)
    assert "open with secrets/signing" in {finding["words"] for finding in after}
    # Nothing went into a file.
    assert not (settings.parent / ".gatehouse" / "gatehouse.db").exists()
