"""The authorization server as programs and people meet it: from registration to a call, and every wrong turn."""

import base64
import json
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from tests.gateway.auth.server.conftest import FREE
from tests.peers.oauth_flow import CALLBACK, BrowserUser, OAuthTestClient, pkce_pair

Json = dict[str, Any]


async def owner(gateway: Any, **more: Any) -> BrowserUser:
    return BrowserUser(code=await gateway.house.identity.sign_in_code(), **more)


def claims(token: str) -> Json:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


# ---- the way it should go


ON_BOTH = pytest.mark.parametrize("identity_database", ["sqlite", "postgres"], indirect=True)


@ON_BOTH
async def test_a_program_registers_a_person_agrees_and_the_token_opens_the_door(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(await owner(server))
    assert (token["token_type"], token["expires_in"]) == ("Bearer", 600)
    assert token["scope"] == "mcp:call mcp:call:write mcp:list"
    said = claims(token["access_token"])
    assert (said["iss"], said["aud"], said["sub"]) == (server.base, server.url, "owner")
    assert said["exp"] - said["iat"] == 600
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 200


async def test_the_answer_names_its_issuer_and_keeps_the_state_on_success_and_on_error(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = await owner(server)
    told = await person.visit(program.authorization_url(pkce_pair()[1]))
    assert (told["iss"], told["state"], told["to"]) == (server.base, "st4te", CALLBACK)
    person.decision = "deny"
    told = await person.visit(program.authorization_url(pkce_pair()[1]))
    assert (told["error"], told["iss"], told["state"]) == ("access_denied", server.base, "st4te")
    told = await person.visit(program.authorization_url(pkce_pair()[1], code_challenge_method="plain"))
    assert (told["error"], told["iss"], told["state"]) == ("invalid_request", server.base, "st4te")


async def test_a_signed_in_browser_is_asked_for_consent_only(server: Any) -> None:
    person = await owner(server)
    for _ in range(2):
        await (await OAuthTestClient.register(server.base)).sign_in(person)
    assert sum("Code from the terminal" in page.text for page in person.pages) == 1
    assert sum("Allow Test program?" in page.text for page in person.pages) == 2


async def test_tokens_are_in_no_cache(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code, verifier = await program.obtain_code(await owner(server))
    for answer in (await program.redeem(code, verifier), await program.redeem("nothing", verifier)):
        assert (answer.headers["cache-control"], answer.headers["content-type"]) == ("no-store", "application/json")


@ON_BOTH
async def test_a_refresh_rotates_and_the_new_tokens_work(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    first = await program.sign_in(await owner(server))
    second = (await program.refresh(first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert (await server.as_(second["access_token"]).post("tools/list")).status_code == 200
    assert (await program.refresh(second["refresh_token"], resource=server.url)).status_code == 200


async def test_discovery_is_found_at_the_root_and_by_path_and_says_one_issuer(server: Any) -> None:
    async with httpx.AsyncClient(verify=False, base_url=server.base) as http:
        for name in ("oauth-authorization-server", "openid-configuration"):
            for path in ("", "/mcp"):
                said = (await http.get(f"/.well-known/{name}{path}")).json()
                assert said["issuer"] == server.base
                assert said["code_challenge_methods_supported"] == ["S256"]
                assert said["authorization_response_iss_parameter_supported"] is True
                assert {"authorization_code", "refresh_token"} <= set(said["grant_types_supported"])
                assert "none" in said["token_endpoint_auth_methods_supported"]
                assert "offline_access" not in said["scopes_supported"]
                assert said["client_id_metadata_document_supported"] is False
        keys = (await http.get(urlsplit(said["jwks_uri"]).path)).json()["keys"]
        assert [set(key) & {"d", "kid"} for key in keys] == [{"kid"}]


@pytest.mark.parametrize("path", ["/authorize", "/token", "/register"])
async def test_the_addresses_that_older_clients_guess_are_served(server: Any, path: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=server.base) as http:
        asked = http.get(path) if path == "/authorize" else http.post(path)
        assert (await asked).status_code in (400, 401)


# ---- registration


@pytest.mark.parametrize(
    "redirect",
    [
        "http://127.0.0.1:33418/",
        "http://localhost/callback",
        "http://[::1]:9/cb",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://vscode.dev/redirect",
        "https://claude.ai/api/mcp/auth_callback",
    ],
)
async def test_known_clients_callbacks_and_loopback_may_be_registered(server: Any, redirect: str) -> None:
    assert (await OAuthTestClient.register(server.base, redirect)).id.startswith("gthc_")


EVIL = [
    "javascript:alert(1)",
    "data:text/html,x",
    "//evil.example/cb",
    "http://evil.example/cb",
    "http://127.0.0.1.evil.example/cb",
    "http://localhost@evil.example/cb",
    "http://localhost:80@evil.example/",
    "https://evil.example/cb",
    "https://vscode.dev/redirect/../evil",
    "HTTPS://vscode.dev/redirect",
    "cursor://evil/oauth/callback",
    "cursor://anysphere.cursor-mcp/oauth/callback?x=1",
    "myapp://callback",
    "http://localhost/cb#frag",
    "http://localhost/\r\nSet-Cookie: a=b",
    "http://localhost/a b",
    "http://localhost\\@evil.example/",
    "file:///etc/passwd",
    "",
]


@pytest.mark.parametrize("redirect", EVIL)
async def test_threat_36_no_other_redirect_is_registered(server: Any, redirect: str) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        for uris in ([redirect], [CALLBACK, redirect]):
            answer = await http.post(f"{server.base}/oauth/register", json={"redirect_uris": uris})
            assert (answer.status_code, answer.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({}, "invalid_redirect_uri"),
        ({"redirect_uris": "x"}, "invalid_redirect_uri"),
        ({"redirect_uris": [7]}, "invalid_redirect_uri"),
        ({"redirect_uris": [CALLBACK] * 11}, "invalid_redirect_uri"),
        ({"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "magic"}, "invalid_client_metadata"),
        ({"redirect_uris": [CALLBACK], "grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ([], "invalid_client_metadata"),
    ],
)
async def test_metadata_that_makes_no_client_is_refused(server: Any, metadata: Any, error: str) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{server.base}/register", json=metadata)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


async def test_scopes_grants_and_members_that_we_do_not_know_are_left_out(server: Any) -> None:
    said = {
        "redirect_uris": [CALLBACK],
        "scope": "offline_access everything",
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        "application_type": "native",
        "software_id": "x",
    }
    async with httpx.AsyncClient(verify=False) as http:
        made = (await http.post(f"{server.base}/oauth/register", json=said)).json()
    assert made["grant_types"] == ["authorization_code", "refresh_token"]
    assert (made["token_endpoint_auth_method"], "client_secret" in made) == ("none", False)


async def test_threat_35_an_address_registers_only_so_many_clients(start: Any) -> None:
    async with start(auth={"registration_rate": "3/hour"}) as gateway, httpx.AsyncClient(verify=False) as http:
        said = {"redirect_uris": [CALLBACK]}
        answers = [await http.post(f"{gateway.base}/{path}", json=said) for path in ("oauth/register", "register") * 2]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert int(answers[-1].headers["retry-after"]) > 0


# ---- what a program may ask


async def test_a_loopback_program_may_come_back_on_any_port_but_nowhere_else(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, "http://localhost/callback")
    person = await owner(server)
    told = await person.visit(program.authorization_url(pkce_pair()[1], redirect_uri="http://localhost:51234/callback"))
    assert told["to"] == "http://localhost:51234/callback"
    for other in ("http://127.0.0.1:51234/callback", "http://localhost:51234/other", "http://localhost/callback?x=1"):
        async with httpx.AsyncClient(verify=False) as http:
            answer = await http.get(program.authorization_url(pkce_pair()[1], redirect_uri=other))
        assert (answer.status_code, "location" in answer.headers) == (400, False)


async def test_threat_36_the_consoles_own_client_goes_to_the_console_alone_and_asks_for_its_one_scope(
    server: Any,
) -> None:
    """Nobody is asked whether it may, so nothing else of this machine may stand in for it."""
    console = f"{server.base}/console/signed-in"
    person = await owner(server)
    program = OAuthTestClient(server.base, "gatehouse-console", console)
    everything = "mcp:admin mcp:list mcp:call mcp:call:write bridge:roblox bridge:godot"
    assert (await program.sign_in(person, scope=everything))["scope"] == "mcp:admin"
    assert (await person.visit(program.authorization_url(pkce_pair()[1], scope="mcp:call")))["error"] == "invalid_scope"
    port = urlsplit(server.base).port
    for other in (console.replace(f":{port}", ":6666"), console.replace("127.0.0.1", "localhost"), f"{console}/"):
        async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
            answer = await http.get(program.authorization_url(pkce_pair()[1], redirect_uri=other))
        assert (answer.status_code, "location" in answer.headers) == (400, False), other


async def test_threat_36_an_unknown_client_or_redirect_is_told_to_the_person_and_never_followed(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False) as http:
        for changes in ({"client_id": "nobody"}, {"redirect_uri": "https://evil.example/"}, {"client_id": None}):
            answer = await http.get(program.authorization_url(pkce_pair()[1], **changes))
            assert (answer.status_code, "location" in answer.headers) == (400, False)
            assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
)
async def test_a_request_that_is_not_good_goes_back_with_its_error(server: Any, changes: Json, error: str) -> None:
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.get(program.authorization_url(pkce_pair()[1], **changes))
    told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (told["error"], told["iss"], told["state"]) == (error, server.base, "st4te")


@pytest.mark.parametrize(
    "wrong",
    [{"code_challenge": None}, {"resource": "https://other.example/mcp"}, {"response_type": "token"}],
)
async def test_threat_36_nobody_is_sent_to_a_strangers_address_by_a_request_that_was_made_to_fail(
    start: Any, wrong: Json
) -> None:
    """Where https clients may register, our name must not stand before a link to wherever they like."""
    evil, known = "https://evil.example/cb?a=%22%3E", "https://claude.ai/api/mcp/auth_callback"
    given = {**FREE, "redirects": ["https://ours.example/cb"]}
    async with start(auth=given, server={"public_url": "https://gw.example"}) as gateway:
        await gateway.house.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
        headers = {"host": "gw.example"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:

            async def asked(redirect: str, changes: Json, **more: Any) -> httpx.Response:
                made = (await http.post("/oauth/register", json={"redirect_uris": [redirect]})).json()
                program = OAuthTestClient("https://gw.example", made["client_id"], redirect)
                return await http.get(
                    program.authorization_url(pkce_pair()[1], **changes).removeprefix("https://gw.example"), **more
                )

            shown = await asked(evil, wrong)
            assert (shown.status_code, "location" in shown.headers) == (400, False)
            assert 'href="https://evil.example/cb?a=%22%3E&amp;' in shown.text
            assert "<strong>evil.example</strong>" in shown.text
            for trusted in (known, CALLBACK, "https://ours.example/cb"):
                assert (await asked(trusted, wrong)).headers["location"].startswith(f"{trusted}?")


async def test_a_person_who_says_no_is_sent_back_wherever_the_program_is(start: Any) -> None:
    async with start(auth=FREE, server={"public_url": "https://gw.example"}) as gateway:
        await gateway.house.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
        headers = {"host": "gw.example"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:
            redirect = "https://app.example/cb"
            made = (await http.post("/oauth/register", json={"redirect_uris": [redirect]})).json()
            program = OAuthTestClient("https://gw.example", made["client_id"], redirect)
            path = program.authorization_url(pkce_pair()[1]).removeprefix("https://gw.example")
            signing = {"what": "password", "name": "bob", "password": "correct horse"}
            for form in (signing, {"what": "consent", "decision": "deny"}):
                page = await http.get(path)
                token = re.search(r'name="csrf" value="([^"]+)"', page.text)
                assert token is not None
                if "set-cookie" in page.headers:  # a secure cookie, which this client would not send by plain http
                    http.headers["cookie"] = page.headers["set-cookie"].partition(";")[0]
                answer = await http.post(path, data={**form, "csrf": token[1]})
                if "set-cookie" in answer.headers:
                    http.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
    assert answer.headers["location"].startswith(f"{redirect}?error=access_denied")


async def test_unknown_scopes_are_left_out_and_without_any_the_everyday_ones_are_meant(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = await owner(server)
    for asked, given in (
        ("offline_access mcp:list", "mcp:list"),
        ("offline_access", "mcp:call mcp:call:write mcp:list"),
        (None, "mcp:call mcp:call:write mcp:list"),
        ("mcp:admin", "mcp:admin"),
    ):
        assert (await program.sign_in(person, scope=asked))["scope"] == given


async def test_a_user_gives_no_more_than_they_have(server: Any) -> None:
    identity = server.house.identity
    await identity.users.put("default", "reader", "a long password", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(name="reader", password="a long password")
    assert (await program.sign_in(person))["scope"] == "mcp:list"
    told = await person.visit(program.authorization_url(pkce_pair()[1], scope="mcp:admin"))
    assert told["error"] == "invalid_scope"


async def test_a_token_is_for_the_resource_that_was_asked_for(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(await owner(server), resource=f"{server.url}/core")
    assert claims(token["access_token"])["aud"] == f"{server.url}/core"
    assert (await server.as_(token["access_token"]).post("tools/list", path="/mcp/core")).status_code == 200
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401
