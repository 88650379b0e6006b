"""Sign-in and consent pages: content, CSRF protection, rate limits and cookies."""

import asyncio
import re
from typing import Any

import httpx
import pytest

from tests.gateway.auth.server.conftest import FREE
from tests.peers.oauth_flow import BrowserUser, OAuthTestClient, pkce_pair


def csrf(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def test_threat_36_pages_load_nothing_run_no_script_and_cannot_be_framed(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(code=await server.app.identity.create_sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1]))
    shown = [page for page in person.pages if page.status_code == 200]
    assert len(shown) == 2
    for page in shown:
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert "<script" not in page.text
    assert "form-action 'self' http://127.0.0.1:8765" in shown[1].headers["content-security-policy"]


async def test_consent_page_shows_client_redirect_endpoint_and_scopes(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, client_name="Notebook")
    person = BrowserUser(code=await server.app.identity.create_sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1], resource=f"{server.url}/core"))
    page = person.pages[-2].text
    for text in ("Allow Notebook?", "127.0.0.1:8765", "owner", "/mcp/core", "mcp:call:write", "modify data"):
        assert text in page


NAMES = [
    ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ('"><img src=x onerror=alert(1)>', "&quot;&gt;&lt;img src=x onerror=alert(1)&gt;"),
    ("safe\u202eexe.evil", "safeexe.evil"),
    ("a\u200bb\u0000c\u001b[31m", "abc[31m"),
    ("x" * 500, "x" * 64),
    ("\u2066\u2069", "Unnamed application"),
]


@pytest.mark.parametrize(("name", "shown"), NAMES)
async def test_threat_36_client_name_is_escaped_and_cleaned(server: Any, name: str, shown: str) -> None:
    program = await OAuthTestClient.register(server.base, client_name=name)
    async with httpx.AsyncClient(verify=False) as http:
        page = (await http.get(program.authorization_url(pkce_pair()[1]))).text
    assert f"<strong>{shown}</strong>" in page


async def test_form_of_another_browser_request_or_site_is_rejected(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    address, other = (
        program.authorization_url(pkce_pair()[1]),
        program.authorization_url(pkce_pair()[1], scope="mcp:list"),
    )
    code = await server.app.identity.create_sign_in_code()
    async with httpx.AsyncClient(verify=False) as mine, httpx.AsyncClient(verify=False) as theirs:
        token = csrf((await mine.get(address)).text)
        form = {"csrf": token, "what": "code", "code": code}
        assert (await theirs.post(address, data=form)).status_code == 400, "another browser"
        assert (await mine.post(other, data=form)).status_code == 400, "another request"
        assert (await mine.post(address, data={**form, "csrf": ""})).status_code == 400
        evil = await mine.post(address, data=form, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403, "another site"
        assert (await mine.post(address, data=form)).status_code == 303


async def test_consent_form_of_another_client_is_rejected(server: Any) -> None:
    program, evil = (
        await OAuthTestClient.register(server.base),
        await OAuthTestClient.register(server.base, client_name="Evil"),
    )
    person = BrowserUser(code=await server.app.identity.create_sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1]))
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        good, bad = program.authorization_url(pkce_pair()[1]), evil.authorization_url(pkce_pair()[1])
        token = csrf((await http.get(good)).text)
        form = {"csrf": token, "what": "consent", "decision": "allow"}
        assert (await http.post(bad, data=form)).status_code == 400
        assert (await http.post(bad, data={**form, "csrf": "0" * 64})).status_code == 400
        assert "code=" in (await http.post(good, data=form)).headers["location"]


async def test_threat_3_consent_is_bound_to_client_request_and_browser(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, client_name="Notebook")
    evil = await OAuthTestClient.register(server.base, client_name="Evil")
    victim = BrowserUser(code=await server.app.identity.create_sign_in_code())
    attacker = BrowserUser(code=await server.app.identity.create_sign_in_code())
    for person in (victim, attacker):
        await program.sign_in(person)

    def consent(token: str) -> dict[str, str]:
        return {"csrf": token, "what": "consent", "decision": "allow"}

    lure, good = evil.authorization_url(pkce_pair()[1]), program.authorization_url(pkce_pair()[1])
    async with (
        httpx.AsyncClient(verify=False, cookies=victim.cookies) as http,
        httpx.AsyncClient(verify=False, cookies=attacker.cookies) as theirs,
    ):
        # Consent for one client covers neither another client nor the next request.
        for address, name in ((lure, "Evil"), (good, "Notebook")):
            page = await http.get(address)
            assert (page.status_code, f"Allow {name}?" in page.text) == (200, True)
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert page.headers["x-frame-options"] == "DENY"
        mine = csrf((await http.get(good)).text)
        caught = csrf((await theirs.get(lure)).text)
        other = program.authorization_url(pkce_pair()[1], scope="mcp:admin")
        for address, token in ((lure, mine), (other, mine), (lure, caught), (good, caught), (lure, "")):
            answer = await http.post(address, data=consent(token))
            assert (answer.status_code, "location" in answer.headers) == (400, False)
        assert (await theirs.post(good, data=consent(mine))).status_code == 400, "another browser"
        assert "code=" in (await http.post(good, data=consent(mine))).headers["location"]


async def test_code_signs_in_once(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code = await server.app.identity.create_sign_in_code()
    await program.sign_in(BrowserUser(code=code.lower().replace("-", " ")))
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "code", "code": code}
        answer = await http.post(address, data=form)
    assert answer.status_code == 200
    assert "This code is invalid, expired or already used." in answer.text


async def test_threat_35_sign_in_is_blocked_after_ten_failures(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code = await server.app.identity.create_sign_in_code()
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "code"}
        texts = [(await http.post(address, data={**form, "code": f"AAAAA-{n:05}"})).text for n in range(11)]
        assert all("already used" in text for text in texts[:10])
        assert "Too many attempts" in texts[10]
        assert "Too many attempts" in (await http.post(address, data={**form, "code": code})).text


async def test_threat_35_concurrent_sign_in_attempts_are_blocked_after_ten_failures(server: Any) -> None:
    await server.app.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "password", "name": "bob"}
        guesses = (http.post(address, data={**form, "password": f"wrong number {n}"}) for n in range(30))
        texts = [answer.text for answer in await asyncio.gather(*guesses)]
    assert sum("Wrong name or password" in text for text in texts) == 10
    assert sum("Too many attempts" in text for text in texts) == 20


async def test_successful_sign_ins_are_not_counted(server: Any) -> None:
    await server.app.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    for _ in range(12):
        await program.sign_in(BrowserUser(name="bob", password="correct horse"))


async def test_threat_35_pages_are_rate_limited_by_address(start: Any) -> None:
    async with start(auth={"authorize_rate": "5/minute"}) as gateway, httpx.AsyncClient(verify=False) as http:
        codes = [(await http.get(f"{gateway.base}/oauth/authorize")).status_code for _ in range(7)]
    assert codes == [400] * 5 + [429] * 2


async def test_only_the_correct_password_signs_in(server: Any) -> None:
    users = server.app.identity.users
    await users.put("default", "bob", "correct horse", ["mcp:list", "mcp:call"], ["dev"])
    program = await OAuthTestClient.register(server.base)
    assert (await program.sign_in(BrowserUser(name="bob", password="correct horse")))["scope"] == "mcp:call mcp:list"
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "password"}
        for name, password in (("bob", "wrong"), ("unknown", "correct horse"), ("owner", ""), ("guests/bob", "x")):
            answer = await http.post(address, data={**form, "name": name, "password": password})
            assert "Wrong name or password" in answer.text
            assert "set-cookie" not in answer.headers


async def test_user_of_another_tenant_signs_in_with_the_tenant_prefix(start: Any) -> None:
    async with start(auth=FREE, tenants={"default": {}, "acme": {}}) as gateway:
        await gateway.app.identity.users.put("acme", "zoe", "correct horse", ["mcp:list"])
        program = await OAuthTestClient.register(gateway.base)
        token = await program.sign_in(BrowserUser(name="acme/zoe", password="correct horse"))
        caller = await gateway.app.identity.authenticate({"authorization": f"Bearer {token['access_token']}"}, "")
    assert caller.principal == "acme/user:zoe"


async def test_user_can_switch_to_another_account(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(code=await server.app.identity.create_sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1]))
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "leave"}
        answer = await http.post(address, data=form, follow_redirects=True)
        assert "Code from the terminal" in answer.text
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        assert "Code from the terminal" in (await http.get(address)).text, "the session has ended, not only the cookie"


async def test_session_cookie_is_host_only_and_http_only(start: Any) -> None:
    for public, name, more in (
        ("", "gatehouse=", ""),
        ("https://gw.example", "__Host-gatehouse=", "; Secure"),
    ):
        options = {"server": {"public_url": public}} if public else {}
        async with start(auth=FREE, **options) as gw:
            base = gw.app.public_url
            await gw.app.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
            body = {"redirect_uris": ["http://127.0.0.1/cb"]}
            async with httpx.AsyncClient(
                verify=False, base_url=gw.base, headers={"host": base.partition("//")[2]}
            ) as http:
                made = (await http.post("/oauth/register", json=body)).json()
                program = OAuthTestClient(base, made["client_id"], "http://127.0.0.1/cb")
                path = program.authorization_url(pkce_pair()[1]).removeprefix(base)
                shown = await http.get(path)
                cookie = shown.headers["set-cookie"].partition(";")[0]
                form = {"csrf": csrf(shown.text), "what": "password", "name": "bob", "password": "correct horse"}
                answer = await http.post(path, data=form, headers={"cookie": cookie})
            assert answer.status_code == 303
            set_cookie = answer.headers["set-cookie"]
            assert set_cookie.startswith(name)
            assert set_cookie.endswith(f"; Path=/; HttpOnly; SameSite=Lax{more}")


async def test_public_gateway_neither_creates_nor_accepts_codes(start: Any) -> None:
    async with start(auth=FREE, server={"public_url": "https://gw.example"}) as gateway:
        identity = gateway.app.identity
        assert await identity.create_sign_in_code() is None
        code = await identity.browser_sessions.new_code(("default", "owner"))
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers={"host": "gw.example"}) as http:
            made = (await http.post("/oauth/register", json={"redirect_uris": ["https://app.example/cb"]})).json()
            program = OAuthTestClient("https://gw.example", made["client_id"], "https://app.example/cb")
            path = program.authorization_url(pkce_pair()[1]).removeprefix("https://gw.example")
            shown = await http.get(path)
            assert "Code from the terminal" not in shown.text
            cookie = shown.headers["set-cookie"].partition(";")[0]
            form = {"csrf": csrf(shown.text), "what": "code", "code": code}
            answer = await http.post(path, data=form, headers={"cookie": cookie})
        assert (answer.status_code, "already used" in answer.text) == (200, True)
