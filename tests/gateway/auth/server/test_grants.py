"""Authorization codes, refresh tokens and revocation at the token endpoint."""

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest

from tests.peers.oauth_flow import BrowserUser, OAuthTestClient, pkce_pair

Json = dict[str, Any]
FREE = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute", "token_rate": "10000/minute"}


@pytest.fixture
async def server(start: Any) -> Any:
    async with start(auth=FREE) as gateway:
        yield gateway


async def owner(gateway: Any, **more: Any) -> BrowserUser:
    return BrowserUser(code=await gateway.app.identity.create_sign_in_code(), **more)


def claims(token: str) -> Json:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


# ---- codes


async def test_code_requires_its_own_verifier_redirect_client_and_resource(server: Any) -> None:
    program, other = await OAuthTestClient.register(server.base), await OAuthTestClient.register(server.base)
    person = await owner(server)
    for form, error in (
        ({"code_verifier": pkce_pair()[0]}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:1/callback"}, "invalid_grant"),
        ({"client_id": other.id}, "invalid_grant"),
        ({"resource": f"{server.url}/core"}, "invalid_target"),
        ({"code": "nothing"}, "invalid_grant"),
    ):
        code, verifier = await program.obtain_code(person)
        sent = {"code": code, "code_verifier": verifier, "redirect_uri": program.redirect, **form}
        answer = await program.post(grant_type="authorization_code", **sent)
        assert (answer.status_code, answer.json()["error"]) == (400, error), form


async def test_confidential_client_also_needs_a_code_verifier(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, token_endpoint_auth_method="client_secret_post")
    code, _ = await program.obtain_code(await owner(server))
    sent = {"code": code, "redirect_uri": program.redirect, "client_secret": program.secret}
    answer = await program.post(grant_type="authorization_code", **sent)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_confidential_client_must_authenticate(server: Any, method: str) -> None:
    program = await OAuthTestClient.register(server.base, token_endpoint_auth_method=method)
    person = await owner(server)
    code, verifier = await program.obtain_code(person)
    assert (await program.redeem(code, verifier)).json()["error"] == "invalid_client"
    assert (await program.redeem(code, verifier, client_secret="wrong")).json()["error"] == "invalid_client"
    sent = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
    answer = await program.post(auth=(program.id, program.secret), **sent, redirect_uri=program.redirect)
    assert answer.status_code == 200


async def test_threat_9_replayed_code_revokes_the_tokens_issued_for_it(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code, verifier = await program.obtain_code(await owner(server))
    token = (await program.redeem(code, verifier)).json()
    assert (await program.redeem(code, verifier)).json()["error"] == "invalid_grant"
    # A second request within seconds counts as a retry and revokes nothing.
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 200
    await _shift_back(server, "oauth_codes", "used_at", 60)
    assert (await program.redeem(code, verifier)).json()["error"] == "invalid_grant"
    assert (await program.refresh(token["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401


async def _shift_back(gateway: Any, table: str, column: str, seconds: float) -> None:
    """Shift the times of rows back, as if that many seconds had passed."""
    async with gateway.app.database.transaction() as connection:
        await connection.exec_driver_sql(f"UPDATE {table} SET {column} = {column} - {seconds}")


async def test_code_expires_after_a_minute(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code, verifier = await program.obtain_code(await owner(server))
    await _shift_back(server, "oauth_codes", "expires_at", 61)
    assert (await program.redeem(code, verifier)).json()["error"] == "invalid_grant"


# ---- refresh


async def test_threat_9_concurrent_refreshes_get_the_same_response_and_one_generation(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(await owner(server))
    for _ in range(3):
        answers = await asyncio.gather(*(program.refresh(token["refresh_token"]) for _ in range(5)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        token = answers[0].json()
    async with server.app.database.reading() as connection:
        rows = (await connection.exec_driver_sql("SELECT generation FROM refresh_tokens ORDER BY 1")).scalars().all()
    assert list(rows) == [0, 1, 2, 3]


async def test_threat_9_refresh_token_reused_after_the_grace_period_revokes_the_family(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    first = await program.sign_in(await owner(server))
    second = (await program.refresh(first["refresh_token"])).json()
    assert (await server.as_(second["access_token"]).post("tools/list")).status_code == 200
    await _shift_back(server, "refresh_tokens", "rotated_at", 46)
    assert (await program.refresh(first["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await program.refresh(second["refresh_token"])).json()["error"] == "invalid_grant"
    for token in (first, second):
        assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401


async def test_concurrent_refreshes_of_many_sign_ins_succeed_on_postgres(start: Any, postgres_url: str) -> None:
    async with start(auth=FREE, database={"url": postgres_url}) as server:
        program = await OAuthTestClient.register(server.base)
        person = await owner(server)
        tokens = [(await program.sign_in(person))["refresh_token"] for _ in range(8)]
        adapter = server.app.identity.authorization_server._core.queries
        # More than the database has connections: a refresh that needs two of them would wait for the others.
        rotations = (
            adapter.refresh_tokens.rotate(token, program.id, None, adapter._refresh_response) for token in tokens
        )
        assert all("access_token" in answer for answer in await asyncio.gather(*rotations))


async def test_refresh_token_is_bound_to_its_client_and_resource(server: Any) -> None:
    program, other = await OAuthTestClient.register(server.base), await OAuthTestClient.register(server.base)
    token = (await program.sign_in(await owner(server)))["refresh_token"]
    assert (await other.refresh(token)).json()["error"] == "invalid_grant"
    assert (await program.refresh(token, resource=f"{server.url}/core")).json()["error"] == "invalid_grant"
    assert (await program.refresh(token, resource="https://other.example")).json()["error"] == "invalid_target"
    assert (await program.refresh(token)).status_code == 200, "rejected requests do not use up the token"


async def test_stored_refresh_responses_are_encrypted(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    first = await program.sign_in(await owner(server))
    second = (await program.refresh(first["refresh_token"])).json()
    raw = b"".join(path.read_bytes() for path in server.app.settings.data_dir.glob("gatehouse.db*"))
    for secret in (first["refresh_token"], second["refresh_token"], second["access_token"]):
        assert secret.encode() not in raw


async def test_removed_user_is_rejected_at_once(server: Any) -> None:
    users = server.app.identity.users
    await users.put("default", "bob", "a long password", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(BrowserUser(name="bob", password="a long password"))
    holder = server.as_(token["access_token"])
    assert (await holder.post("tools/list")).status_code == 200
    await users.remove("default", "bob")
    assert (await holder.post("tools/list")).status_code == 401
    assert (await program.refresh(token["refresh_token"])).json()["error"] == "invalid_grant"


async def test_threat_8_adding_a_user_again_does_not_restore_old_tokens(server: Any) -> None:
    users = server.app.identity.users
    program = await OAuthTestClient.register(server.base)
    await users.put("default", "bob", "a long password", ["mcp:list"])
    stolen = await program.sign_in(BrowserUser(name="bob", password="a long password"))
    await users.remove("default", "bob")
    await users.put("default", "bob", "another password", ["mcp:list"])
    assert (await server.as_(stolen["access_token"]).post("tools/list")).status_code == 401
    assert (await program.refresh(stolen["refresh_token"])).json()["error"] == "invalid_grant"
    fresh = await program.sign_in(BrowserUser(name="bob", password="another password"))
    assert (await server.as_(fresh["access_token"]).post("tools/list")).status_code == 200
    assert (await program.refresh(fresh["refresh_token"])).status_code == 200


async def test_threat_8_password_change_ends_sessions_and_revokes_tokens(server: Any) -> None:
    users = server.app.identity.users
    program, person = await OAuthTestClient.register(server.base), BrowserUser(name="bob", password="a long password")
    await users.put("default", "bob", "a long password", ["mcp:list"])
    old = await program.sign_in(person)
    await users.put("default", "bob", "another password", ["mcp:list"])
    assert (await server.as_(old["access_token"]).post("tools/list")).status_code == 401
    assert (await program.refresh(old["refresh_token"])).json()["error"] == "invalid_grant"
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as browser:
        assert "Sign in" in (await browser.get(program.authorization_url(pkce_pair()[1]))).text, (
            "the browser session has ended"
        )
    fresh = await program.sign_in(BrowserUser(name="bob", password="another password"))
    assert (await server.as_(fresh["access_token"]).post("tools/list")).status_code == 200


# ---- revocation


async def test_client_can_revoke_only_its_own_tokens(server: Any) -> None:
    program, other = await OAuthTestClient.register(server.base), await OAuthTestClient.register(server.base)
    person = await owner(server)
    first, second = await program.sign_in(person), await program.sign_in(person)
    for token in (first["refresh_token"], first["access_token"], "nothing"):
        assert (await other.post("revoke", token=token)).status_code == 200
    assert (await server.as_(first["access_token"]).post("tools/list")).status_code == 200
    await program.post("revoke", token=first["access_token"])
    assert (await server.as_(first["access_token"]).post("tools/list")).status_code == 401
    assert (await program.refresh(first["refresh_token"])).status_code == 200
    await program.post("revoke", token=second["refresh_token"])
    assert (await server.as_(second["access_token"]).post("tools/list")).status_code == 401
    assert (await program.refresh(second["refresh_token"])).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("grant", ["password", "implicit", "", "urn:ietf:params:oauth:grant-type:jwt-bearer"])
async def test_other_grant_types_are_rejected(server: Any, grant: str) -> None:
    program = await OAuthTestClient.register(server.base)
    answer = await program.post(grant_type=grant, username="owner", password="x")
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")


async def test_repeated_parameter_is_rejected(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False) as http:
        body = f"grant_type=refresh_token&grant_type=authorization_code&client_id={program.id}"
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = await http.post(f"{server.base}/oauth/token", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        repeated = await http.get(f"{program.authorization_url(pkce_pair()[1])}&client_id=other")
        assert repeated.status_code == 400
