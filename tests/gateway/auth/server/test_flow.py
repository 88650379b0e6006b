"""The authorization flow from registration to a call, and its error cases."""

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
    return BrowserUser(code=await gateway.app.identity.create_sign_in_code(), **more)


def claims(token: str) -> Json:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


# ---- successful flows


ON_BOTH = pytest.mark.parametrize("identity_database", ["sqlite", "postgres"], indirect=True)


@ON_BOTH
async def test_registered_client_gets_a_working_token_after_consent(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(await owner(server))
    assert (token["token_type"], token["expires_in"]) == ("Bearer", 600)
    assert token["scope"] == "mcp:call mcp:call:write mcp:list"
    payload = claims(token["access_token"])
    assert (payload["iss"], payload["aud"], payload["sub"]) == (server.base, server.url, "owner")
    assert payload["exp"] - payload["iat"] == 600
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 200


async def test_response_contains_issuer_and_state_on_success_and_on_error(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = await owner(server)
    response = await person.visit(program.authorization_url(pkce_pair()[1]))
    assert (response["iss"], response["state"], response["to"]) == (server.base, "st4te", CALLBACK)
    person.decision = "deny"
    response = await person.visit(program.authorization_url(pkce_pair()[1]))
    assert (response["error"], response["iss"], response["state"]) == ("access_denied", server.base, "st4te")
    response = await person.visit(program.authorization_url(pkce_pair()[1], code_challenge_method="plain"))
    assert (response["error"], response["iss"], response["state"]) == ("invalid_request", server.base, "st4te")


async def test_signed_in_browser_sees_only_the_consent_page(server: Any) -> None:
    person = await owner(server)
    for _ in range(2):
        await (await OAuthTestClient.register(server.base)).sign_in(person)
    assert sum("Code from the terminal" in page.text for page in person.pages) == 1
    assert sum("Allow Test program?" in page.text for page in person.pages) == 2


async def test_token_responses_are_not_cacheable(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code, verifier = await program.obtain_code(await owner(server))
    for answer in (await program.redeem(code, verifier), await program.redeem("nothing", verifier)):
        assert (answer.headers["cache-control"], answer.headers["content-type"]) == ("no-store", "application/json")


@ON_BOTH
async def test_refresh_rotates_and_the_new_tokens_work(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    first = await program.sign_in(await owner(server))
    second = (await program.refresh(first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert (await server.as_(second["access_token"]).post("tools/list")).status_code == 200
    assert (await program.refresh(second["refresh_token"], resource=server.url)).status_code == 200


async def test_discovery_is_served_at_the_root_and_by_path_with_one_issuer(server: Any) -> None:
    async with httpx.AsyncClient(verify=False, base_url=server.base) as http:
        for name in ("oauth-authorization-server", "openid-configuration"):
            for path in ("", "/mcp"):
                metadata = (await http.get(f"/.well-known/{name}{path}")).json()
                assert metadata["issuer"] == server.base
                assert metadata["code_challenge_methods_supported"] == ["S256"]
                assert metadata["authorization_response_iss_parameter_supported"] is True
                assert {"authorization_code", "refresh_token"} <= set(metadata["grant_types_supported"])
                assert "none" in metadata["token_endpoint_auth_methods_supported"]
                assert "offline_access" not in metadata["scopes_supported"]
                assert metadata["client_id_metadata_document_supported"] is False
        keys = (await http.get(urlsplit(metadata["jwks_uri"]).path)).json()["keys"]
        assert [set(key) & {"d", "kid"} for key in keys] == [{"kid"}]


@pytest.mark.parametrize("path", ["/authorize", "/token", "/register"])
async def test_default_paths_of_older_clients_are_served(server: Any, path: str) -> None:
    async with httpx.AsyncClient(verify=False, base_url=server.base) as http:
        request = http.get(path) if path == "/authorize" else http.post(path)
        assert (await request).status_code in (400, 401)


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
async def test_known_callbacks_and_loopback_can_be_registered(server: Any, redirect: str) -> None:
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
async def test_threat_36_other_redirects_cannot_be_registered(server: Any, redirect: str) -> None:
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
async def test_invalid_metadata_is_rejected(server: Any, metadata: Any, error: str) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.post(f"{server.base}/register", json=metadata)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


async def test_unknown_scopes_grants_and_members_are_ignored(server: Any) -> None:
    body = {
        "redirect_uris": [CALLBACK],
        "scope": "offline_access everything",
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        "application_type": "native",
        "software_id": "x",
    }
    async with httpx.AsyncClient(verify=False) as http:
        made = (await http.post(f"{server.base}/oauth/register", json=body)).json()
    assert made["grant_types"] == ["authorization_code", "refresh_token"]
    assert (made["token_endpoint_auth_method"], "client_secret" in made) == ("none", False)


async def test_threat_35_registrations_are_rate_limited_by_address(start: Any) -> None:
    async with start(auth={"registration_rate": "3/hour"}) as gateway, httpx.AsyncClient(verify=False) as http:
        body = {"redirect_uris": [CALLBACK]}
        answers = [await http.post(f"{gateway.base}/{path}", json=body) for path in ("oauth/register", "register") * 2]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert int(answers[-1].headers["retry-after"]) > 0


# ---- authorization requests


async def test_loopback_redirect_may_use_any_port_but_no_other_path_or_host(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, "http://localhost/callback")
    person = await owner(server)
    response = await person.visit(
        program.authorization_url(pkce_pair()[1], redirect_uri="http://localhost:51234/callback")
    )
    assert response["to"] == "http://localhost:51234/callback"
    for other in ("http://127.0.0.1:51234/callback", "http://localhost:51234/other", "http://localhost/callback?x=1"):
        async with httpx.AsyncClient(verify=False) as http:
            answer = await http.get(program.authorization_url(pkce_pair()[1], redirect_uri=other))
        assert (answer.status_code, "location" in answer.headers) == (400, False)


async def test_threat_36_console_client_redirects_only_to_the_console_and_gets_only_the_admin_scope(
    server: Any,
) -> None:
    """The console client needs no consent, so no other local address may impersonate it."""
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


async def test_threat_36_unknown_client_or_redirect_shows_an_error_page_without_redirect(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False) as http:
        for changes in ({"client_id": "unknown"}, {"redirect_uri": "https://evil.example/"}, {"client_id": None}):
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
async def test_invalid_request_redirects_with_its_error(server: Any, changes: Json, error: str) -> None:
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False) as http:
        answer = await http.get(program.authorization_url(pkce_pair()[1], **changes))
    response = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (response["error"], response["iss"], response["state"]) == (error, server.base, "st4te")


@pytest.mark.parametrize(
    "wrong",
    [{"code_challenge": None}, {"resource": "https://other.example/mcp"}, {"response_type": "token"}],
)
async def test_threat_36_invalid_request_does_not_redirect_to_an_untrusted_address(start: Any, wrong: Json) -> None:
    """Any https client may register, so the gateway must not become an open redirector."""
    evil, known = "https://evil.example/cb?a=%22%3E", "https://claude.ai/api/mcp/auth_callback"
    auth = {**FREE, "redirects": ["https://ours.example/cb"]}
    async with start(auth=auth, server={"public_url": "https://gw.example"}) as gateway:
        await gateway.app.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
        headers = {"host": "gw.example"}
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers=headers) as http:

            async def authorize(redirect: str, changes: Json, **more: Any) -> httpx.Response:
                made = (await http.post("/oauth/register", json={"redirect_uris": [redirect]})).json()
                program = OAuthTestClient("https://gw.example", made["client_id"], redirect)
                return await http.get(
                    program.authorization_url(pkce_pair()[1], **changes).removeprefix("https://gw.example"), **more
                )

            page = await authorize(evil, wrong)
            assert (page.status_code, "location" in page.headers) == (400, False)
            assert 'href="https://evil.example/cb?a=%22%3E&amp;' in page.text
            assert "<strong>evil.example</strong>" in page.text
            for trusted in (known, CALLBACK, "https://ours.example/cb"):
                assert (await authorize(trusted, wrong)).headers["location"].startswith(f"{trusted}?")


async def test_denied_consent_redirects_to_any_registered_address(start: Any) -> None:
    async with start(auth=FREE, server={"public_url": "https://gw.example"}) as gateway:
        await gateway.app.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
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
                if "set-cookie" in page.headers:  # a secure cookie, which this client does not send over plain http
                    http.headers["cookie"] = page.headers["set-cookie"].partition(";")[0]
                answer = await http.post(path, data={**form, "csrf": token[1]})
                if "set-cookie" in answer.headers:
                    http.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
    assert answer.headers["location"].startswith(f"{redirect}?error=access_denied")


async def test_unknown_scopes_are_ignored_and_default_scopes_apply_if_none_remain(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = await owner(server)
    for requested, granted in (
        ("offline_access mcp:list", "mcp:list"),
        ("offline_access", "mcp:call mcp:call:write mcp:list"),
        (None, "mcp:call mcp:call:write mcp:list"),
        ("mcp:admin", "mcp:admin"),
    ):
        assert (await program.sign_in(person, scope=requested))["scope"] == granted


async def test_threat_64_only_the_console_gets_the_scope_to_approve_calls(server: Any) -> None:
    """A model may use the token of any other client, and no model may decide."""
    person = await owner(server)
    program = await OAuthTestClient.register(server.base)
    assert (await program.sign_in(person, scope="mcp:list mcp:approve"))["scope"] == "mcp:list"
    console = OAuthTestClient(server.base, "gatehouse-console", f"{server.base}/console/signed-in")
    assert (await console.sign_in(person, scope="mcp:admin mcp:approve"))["scope"] == "mcp:admin mcp:approve"
    async with httpx.AsyncClient(verify=False) as http:
        metadata = (await http.get(f"{server.base}/.well-known/oauth-authorization-server")).json()
    assert "mcp:approve" not in metadata["scopes_supported"]


async def test_user_cannot_grant_scopes_they_do_not_have(server: Any) -> None:
    identity = server.app.identity
    await identity.users.put("default", "reader", "a long password", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(name="reader", password="a long password")
    assert (await program.sign_in(person))["scope"] == "mcp:list"
    response = await person.visit(program.authorization_url(pkce_pair()[1], scope="mcp:admin"))
    assert response["error"] == "invalid_scope"


async def test_token_is_bound_to_the_requested_resource(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    token = await program.sign_in(await owner(server), resource=f"{server.url}/core")
    assert claims(token["access_token"])["aud"] == f"{server.url}/core"
    assert (await server.as_(token["access_token"]).post("tools/list", path="/mcp/core")).status_code == 200
    assert (await server.as_(token["access_token"]).post("tools/list")).status_code == 401
