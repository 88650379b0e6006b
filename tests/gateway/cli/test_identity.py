"""Users, clients and signing keys, as an operator manages them in the data folder itself."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey
from typer.testing import Result

from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.revocations import Revocations
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.users import User, Users
from gateway.state.database import Database
from gateway.state.secrets import load_secret

Run = Callable[..., Result]


def ask(data: Path, question: Callable[[Database, Revocations], Any]) -> Any:
    async def asking() -> Any:
        database = await Database.open(data)
        try:
            return await question(database, await Revocations.open(database))
        finally:
            await database.close()

    return asyncio.run(asking())


def who(data: Path, name: str, password: str, tenant: str = "default") -> User | None:
    return ask(data, lambda database, revocations: Users(database, revocations).check(tenant, name, password))


def test_a_user_signs_in_with_the_password_they_were_given_until_removed(run: Run, tmp_path: Path) -> None:
    data = tmp_path / ".gatehouse"
    added = run("user", "add", "alice", "--group", "dev", "--password-stdin", input="correct horse\n")
    assert (added.exit_code, added.stdout) == (0, "")
    user = who(data, "alice", "correct horse")
    assert user is not None
    assert (user.groups, user.scopes) == ({"dev"}, {"mcp:list", "mcp:call", "mcp:call:write"})
    assert who(data, "alice", "correct hors") is None
    assert run("user", "add", "alice", "--password-stdin", input="battery staple\n").exit_code == 0
    assert who(data, "alice", "correct horse") is None
    listed = json.loads(run("user", "list", "--json").stdout)
    assert [(row["tenant"], row["subject"]) for row in listed] == [("default", "alice")]
    assert "argon2" not in run("user", "list", "--json").stdout
    assert run("user", "remove", "alice").exit_code == 0
    assert who(data, "alice", "battery staple") is None
    gone = run("user", "remove", "alice")
    assert (gone.exit_code, gone.stderr.startswith("gatehouse: no user of default is named alice")) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "given", "says"),
    [
        (("alice", "--password-stdin"), "short\n", "at least 10 characters"),
        (("al ice", "--password-stdin"), "correct horse\n", "user's name"),
        (("alice", "--tenant", "nobody", "--password-stdin"), "correct horse\n", "no tenant is named nobody"),
        (("alice", "--scope", "everything", "--password-stdin"), "correct horse\n", "no scope is named everything"),
        (("alice",), "", "--password-stdin"),
    ],
)
def test_a_user_that_cannot_be_is_refused_in_a_line(run: Run, arguments: Any, given: str, says: str) -> None:
    refused = run("user", "add", *arguments, input=given)
    assert refused.exit_code != 0
    assert says in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_code_signs_the_owner_in(run: Run, tmp_path: Path) -> None:
    code = run("user", "code").stdout.strip()
    assert ask(tmp_path / ".gatehouse", lambda database, _: BrowserSessions(database).use_code(code)) == (
        "default",
        "owner",
    )


def test_there_is_no_code_where_others_can_reach_the_gateway(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {host: 0.0.0.0}\n")
    refused = run("user", "code")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_a_rotation_leaves_the_old_key_to_verify(run: Run, tmp_path: Path) -> None:
    first, second = (run("signing", "rotate").stdout.strip() for _ in range(2))
    data = tmp_path / ".gatehouse"

    async def published(database: Database, _: Any) -> list[str]:
        signing = await SigningKeys.open(database, load_secret(data / "secrets", "signing"))
        return [key["kid"] for key in signing.published()["keys"]]

    kids = ask(data, published)
    assert kids[-2:] == [first, second]


def test_a_service_client_is_shown_once_with_its_secret_and_kept_without(run: Run, tmp_path: Path) -> None:
    made = json.loads(run("client", "add", "--service", "nightly", "--scope", "mcp:list", "--json").stdout)
    assert made["client_secret"]
    listed = run("client", "list", "--json").stdout
    (row,) = json.loads(listed)
    assert (row["id"], row["service"], row["scopes"]) == (made["client_id"], "nightly", ["mcp:list"])
    assert made["client_secret"] not in listed
    assert run("client", "remove", made["client_id"]).exit_code == 0
    assert json.loads(run("client", "list", "--json").stdout) == []


def test_a_service_client_with_keys_needs_no_secret_and_keeps_no_private_key(run: Run, tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256", private=True, parameters={"kid": "a"})
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    made = json.loads(run("client", "add", "--service", "nightly", "--jwks", str(file), "--json").stdout)
    assert list(made) == ["client_id"]
    raw = b"".join(path.read_bytes() for path in (tmp_path / ".gatehouse").glob("gatehouse.db*"))
    assert key.as_dict(private=True)["d"].encode() not in raw
    file.write_text("[]")
    assert "not a JWK set" in run("client", "add", "--service", "x", "--jwks", str(file)).stderr
