"""`gatehouse user`, `client`, `scim`, `signin-code` and `signing` against the database in the data folder."""

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


def query_database(data: Path, query: Callable[[Database, Revocations], Any]) -> Any:
    async def run() -> Any:
        database = await Database.open(data)
        try:
            return await query(database, await Revocations.open(database))
        finally:
            await database.close()

    return asyncio.run(run())


def check_password(data: Path, name: str, password: str, tenant: str = "default") -> User | None:
    return query_database(
        data, lambda database, revocations: Users(database, revocations).check_password(tenant, name, password)
    )


def test_user_can_sign_in_with_the_password_until_removed(run: Run, tmp_path: Path) -> None:
    data = tmp_path / ".gatehouse"
    added = run("user", "add", "alice", "--group", "dev", "--password-stdin", input="correct horse\n")
    assert (added.exit_code, added.stdout) == (0, "")
    user = check_password(data, "alice", "correct horse")
    assert user is not None
    assert (user.groups, user.scopes) == ({"dev"}, {"mcp:list", "mcp:call", "mcp:call:write"})
    assert check_password(data, "alice", "correct hors") is None
    assert run("user", "add", "alice", "--password-stdin", input="battery staple\n").exit_code == 0
    assert check_password(data, "alice", "correct horse") is None
    listed = json.loads(run("user", "list", "--json").stdout)
    assert [(row["tenant"], row["subject"]) for row in listed] == [("default", "alice")]
    assert "argon2" not in run("user", "list", "--json").stdout
    assert run("user", "remove", "alice").exit_code == 0
    assert check_password(data, "alice", "battery staple") is None
    removed_again = run("user", "remove", "alice")
    assert (
        removed_again.exit_code,
        removed_again.stderr.startswith("gatehouse: tenant default has no user alice"),
    ) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (("alice", "--password-stdin"), "short\n", "at least 10 characters"),
        (("al ice", "--password-stdin"), "correct horse\n", "A user name must be"),
        (("alice", "--tenant", "unknown", "--password-stdin"), "correct horse\n", "there is no tenant unknown"),
        (("alice", "--scope", "everything", "--password-stdin"), "correct horse\n", "unknown scope everything"),
        (("alice",), "", "--password-stdin"),
    ],
)
def test_invalid_user_is_rejected_on_one_line(run: Run, arguments: Any, stdin: str, message: str) -> None:
    refused = run("user", "add", *arguments, input=stdin)
    assert refused.exit_code != 0
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_code_signs_in_the_owner(run: Run, tmp_path: Path) -> None:
    code = run("user", "code").stdout.strip()
    assert query_database(tmp_path / ".gatehouse", lambda database, _: BrowserSessions(database).use_code(code)) == (
        "default",
        "owner",
    )


def test_code_is_rejected_unless_the_host_is_loopback(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text("server: {host: 0.0.0.0}\n")
    refused = run("user", "code")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_rotation_keeps_the_previous_key_for_verification(run: Run, tmp_path: Path) -> None:
    first, second = (run("signing", "rotate").stdout.strip() for _ in range(2))
    data = tmp_path / ".gatehouse"

    async def published(database: Database, _: Any) -> list[str]:
        signing = await SigningKeys.open(database, load_secret(data / "secrets", "signing"))
        return [key["kid"] for key in signing.public_jwks()["keys"]]

    kids = query_database(data, published)
    assert kids[-2:] == [first, second]


def test_client_secret_is_shown_only_at_creation(run: Run, tmp_path: Path) -> None:
    made = json.loads(run("client", "add", "--service", "nightly", "--scope", "mcp:list", "--json").stdout)
    assert made["client_secret"]
    listed = run("client", "list", "--json").stdout
    (row,) = json.loads(listed)
    assert (row["id"], row["service"], row["scopes"]) == (made["client_id"], "nightly", ["mcp:list"])
    assert made["client_secret"] not in listed
    assert run("client", "remove", made["client_id"]).exit_code == 0
    assert json.loads(run("client", "list", "--json").stdout) == []


def test_client_with_jwks_has_no_secret_and_stores_no_private_key(run: Run, tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256", private=True, parameters={"kid": "a"})
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=True)]}))
    made = json.loads(run("client", "add", "--service", "nightly", "--jwks", str(file), "--json").stdout)
    assert list(made) == ["client_id"]
    raw = b"".join(path.read_bytes() for path in (tmp_path / ".gatehouse").glob("gatehouse.db*"))
    private = key.as_dict(private=True)["d"]
    assert isinstance(private, str)
    assert private.encode() not in raw
    file.write_text("[]")
    assert "not a JWK set" in run("client", "add", "--service", "x", "--jwks", str(file)).stderr


PROVIDER = """
auth:
  providers:
    company: {issuer: "https://idp.example", client_id: gatehouse, rules: [{group: "*"}]}
server: {host: 0.0.0.0, public_url: "https://gw.example"}
"""


def test_suspended_user_cannot_sign_in_until_resumed(run: Run, tmp_path: Path) -> None:
    data = tmp_path / ".gatehouse"
    assert run("user", "add", "alice", "--password-stdin", input="correct horse\n").exit_code == 0
    assert run("user", "suspend", "alice").exit_code == 0
    assert check_password(data, "alice", "correct horse") is None
    assert json.loads(run("user", "list", "--json").stdout)[0]["status"] == "suspended"
    again = run("user", "suspend", "alice")
    assert (again.exit_code, "no active user alice" in again.stderr) == (1, True)
    assert run("user", "resume", "alice").exit_code == 0
    assert check_password(data, "alice", "correct horse") is not None


def test_admin_code_needs_confirmation_and_a_provider(run: Run, tmp_path: Path) -> None:
    unconfirmed = run("signin-code")
    assert (unconfirmed.exit_code, "--admin" in unconfirmed.stderr) == (2, True)
    (tmp_path / "gatehouse.yaml").write_text(PROVIDER)
    code = run("signin-code", "--admin")
    assert code.exit_code == 0, code.stderr
    data = tmp_path / ".gatehouse"
    used = query_database(data, lambda database, _: BrowserSessions(database).use_code(code.stdout.strip()))
    assert used == ("default", "owner")
    (tmp_path / "gatehouse.yaml").write_text('server: {host: 0.0.0.0, public_url: "https://gw.example"}\n')
    refused = run("signin-code", "--admin")
    assert (refused.exit_code, "auth.providers" in refused.stderr) == (1, True)


def test_scim_token_is_created_for_a_known_provider_and_revoked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "gatehouse.yaml").write_text(PROVIDER)
    unknown = run("scim", "token", "--provider", "other")
    assert (unknown.exit_code, "known: company" in unknown.stderr) == (1, True)
    token = run("scim", "token", "--provider", "company").stdout.strip()
    assert token.startswith("gthscim_")
    listed = run("scim", "list", "--json").stdout
    assert json.loads(listed)[0]["provider"] == "company"
    assert token not in listed
    assert run("scim", "revoke").exit_code == 0
    assert run("scim", "revoke").exit_code == 1
