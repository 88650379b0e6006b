"""Signing in and agreeing: what the pages show, what they refuse, and what no other site can make of them."""

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


async def test_threat_36_the_pages_load_and_run_nothing_and_are_in_no_frame(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(code=await server.house.identity.sign_in_code())
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


async def test_consent_shows_who_asks_where_it_returns_to_and_what_it_may_do(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, client_name="Notebook")
    person = BrowserUser(code=await server.house.identity.sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1], resource=f"{server.url}/core"))
    page = person.pages[-2].text
    for words in ("Allow Notebook?", "127.0.0.1:8765", "owner", "/mcp/core", "mcp:call:write", "change things"):
        assert words in page


NAMES = [
    ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ('"><img src=x onerror=alert(1)>', "&quot;&gt;&lt;img src=x onerror=alert(1)&gt;"),
    ("safe\u202eexe.evil", "safeexe.evil"),
    ("a\u200bb\u0000c\u001b[31m", "abc[31m"),
    ("x" * 500, "x" * 64),
    ("\u2066\u2069", "A program without a name"),
]


@pytest.mark.parametrize(("name", "shown"), NAMES)
async def test_threat_36_a_name_is_only_ever_text_and_shows_what_it_is(server: Any, name: str, shown: str) -> None:
    program = await OAuthTestClient.register(server.base, client_name=name)
    async with httpx.AsyncClient(verify=False) as http:
        page = (await http.get(program.authorization_url(pkce_pair()[1]))).text
    assert f"<strong>{shown}</strong>" in page


async def test_a_form_of_another_browser_request_or_site_is_refused(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    address, other = (
        program.authorization_url(pkce_pair()[1]),
        program.authorization_url(pkce_pair()[1], scope="mcp:list"),
    )
    code = await server.house.identity.sign_in_code()
    async with httpx.AsyncClient(verify=False) as mine, httpx.AsyncClient(verify=False) as theirs:
        token = csrf((await mine.get(address)).text)
        form = {"csrf": token, "what": "code", "code": code}
        assert (await theirs.post(address, data=form)).status_code == 400, "another browser"
        assert (await mine.post(other, data=form)).status_code == 400, "another request"
        assert (await mine.post(address, data={**form, "csrf": ""})).status_code == 400
        evil = await mine.post(address, data=form, headers={"origin": "https://evil.example"})
        assert evil.status_code == 403, "another site"
        assert (await mine.post(address, data=form)).status_code == 303


async def test_consent_cannot_be_given_with_the_form_of_another_program(server: Any) -> None:
    program, evil = (
        await OAuthTestClient.register(server.base),
        await OAuthTestClient.register(server.base, client_name="Evil"),
    )
    person = BrowserUser(code=await server.house.identity.sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1]))
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        good, bad = program.authorization_url(pkce_pair()[1]), evil.authorization_url(pkce_pair()[1])
        token = csrf((await http.get(good)).text)
        form = {"csrf": token, "what": "consent", "decision": "allow"}
        assert (await http.post(bad, data=form)).status_code == 400
        assert (await http.post(bad, data={**form, "csrf": "0" * 64})).status_code == 400
        assert "code=" in (await http.post(good, data=form)).headers["location"]


async def test_threat_3_a_consent_is_good_for_one_client_one_request_and_one_browser(server: Any) -> None:
    program = await OAuthTestClient.register(server.base, client_name="Notebook")
    evil = await OAuthTestClient.register(server.base, client_name="Evil")
    victim = BrowserUser(code=await server.house.identity.sign_in_code())
    attacker = BrowserUser(code=await server.house.identity.sign_in_code())
    for person in (victim, attacker):
        await program.sign_in(person)

    def agreed(token: str) -> dict[str, str]:
        return {"csrf": token, "what": "consent", "decision": "allow"}

    lure, good = evil.authorization_url(pkce_pair()[1]), program.authorization_url(pkce_pair()[1])
    async with (
        httpx.AsyncClient(verify=False, cookies=victim.cookies) as http,
        httpx.AsyncClient(verify=False, cookies=attacker.cookies) as theirs,
    ):
        # What was agreed to for one client says nothing of another, nor of the next time.
        for address, name in ((lure, "Evil"), (good, "Notebook")):
            page = await http.get(address)
            assert (page.status_code, f"Allow {name}?" in page.text) == (200, True)
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert page.headers["x-frame-options"] == "DENY"
        mine = csrf((await http.get(good)).text)
        caught = csrf((await theirs.get(lure)).text)
        other = program.authorization_url(pkce_pair()[1], scope="mcp:admin")
        for address, token in ((lure, mine), (other, mine), (lure, caught), (good, caught), (lure, "")):
            answer = await http.post(address, data=agreed(token))
            assert (answer.status_code, "location" in answer.headers) == (400, False)
        assert (await theirs.post(good, data=agreed(mine))).status_code == 400, "another browser"
        assert "code=" in (await http.post(good, data=agreed(mine))).headers["location"]


async def test_a_code_signs_in_once(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code = await server.house.identity.sign_in_code()
    await program.sign_in(BrowserUser(code=code.lower().replace("-", " ")))
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "code", "code": code}
        answer = await http.post(address, data=form)
    assert answer.status_code == 200
    assert "That code is not good, or was used." in answer.text


async def test_threat_35_guessing_is_stopped_after_ten(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    code = await server.house.identity.sign_in_code()
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "code"}
        said = [(await http.post(address, data={**form, "code": f"AAAAA-{n:05}"})).text for n in range(11)]
        assert all("not good" in text for text in said[:10])
        assert "Too many attempts" in said[10]
        assert "Too many attempts" in (await http.post(address, data={**form, "code": code})).text


async def test_threat_35_guesses_that_come_all_at_once_are_stopped_after_ten_as_well(server: Any) -> None:
    await server.house.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "password", "name": "bob"}
        guesses = (http.post(address, data={**form, "password": f"wrong number {n}"}) for n in range(30))
        said = [answer.text for answer in await asyncio.gather(*guesses)]
    assert sum("do not go together" in text for text in said) == 10
    assert sum("Too many attempts" in text for text in said) == 20


async def test_who_signs_in_well_is_not_counted(server: Any) -> None:
    await server.house.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
    program = await OAuthTestClient.register(server.base)
    for _ in range(12):
        await program.sign_in(BrowserUser(name="bob", password="correct horse"))


async def test_threat_35_the_pages_are_limited_by_address(start: Any) -> None:
    async with start(auth={"authorize_rate": "5/minute"}) as gateway, httpx.AsyncClient(verify=False) as http:
        codes = [(await http.get(f"{gateway.base}/oauth/authorize")).status_code for _ in range(7)]
    assert codes == [400] * 5 + [429] * 2


async def test_a_password_signs_in_and_a_wrong_one_does_not(server: Any) -> None:
    users = server.house.identity.users
    await users.put("default", "bob", "correct horse", ["mcp:list", "mcp:call"], ["dev"])
    program = await OAuthTestClient.register(server.base)
    assert (await program.sign_in(BrowserUser(name="bob", password="correct horse")))["scope"] == "mcp:call mcp:list"
    async with httpx.AsyncClient(verify=False) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "password"}
        for name, password in (("bob", "wrong"), ("nobody", "correct horse"), ("owner", ""), ("guests/bob", "x")):
            answer = await http.post(address, data={**form, "name": name, "password": password})
            assert "do not go together" in answer.text
            assert "set-cookie" not in answer.headers


async def test_a_user_of_another_tenant_signs_in_with_its_name_before_theirs(start: Any) -> None:
    async with start(auth=FREE, tenants={"default": {}, "acme": {}}) as gateway:
        await gateway.house.identity.users.put("acme", "zoe", "correct horse", ["mcp:list"])
        program = await OAuthTestClient.register(gateway.base)
        token = await program.sign_in(BrowserUser(name="acme/zoe", password="correct horse"))
        caller = await gateway.house.identity.authenticate({"authorization": f"Bearer {token['access_token']}"}, "")
    assert caller.principal == "acme/user:zoe"


async def test_one_may_sign_in_as_somebody_else(server: Any) -> None:
    program = await OAuthTestClient.register(server.base)
    person = BrowserUser(code=await server.house.identity.sign_in_code())
    await person.visit(program.authorization_url(pkce_pair()[1]))
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        address = program.authorization_url(pkce_pair()[1])
        form = {"csrf": csrf((await http.get(address)).text), "what": "leave"}
        answer = await http.post(address, data=form, follow_redirects=True)
        assert "Code from the terminal" in answer.text
    async with httpx.AsyncClient(verify=False, cookies=person.cookies) as http:
        assert "Code from the terminal" in (await http.get(address)).text, "the session is over, not only the cookie"


async def test_a_session_cookie_is_only_for_us_and_out_of_reach_of_scripts(start: Any) -> None:
    for public, name, more in (
        ("", "gatehouse=", ""),
        ("https://gw.example", "__Host-gatehouse=", "; Secure"),
    ):
        given = {"server": {"public_url": public}} if public else {}
        async with start(auth=FREE, **given) as gw:
            base = gw.house.public_url
            await gw.house.identity.users.put("default", "bob", "correct horse", ["mcp:list"])
            said = {"redirect_uris": ["http://127.0.0.1/cb"]}
            async with httpx.AsyncClient(
                verify=False, base_url=gw.base, headers={"host": base.partition("//")[2]}
            ) as http:
                made = (await http.post("/oauth/register", json=said)).json()
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


async def test_where_others_can_reach_it_no_code_is_made_or_taken(start: Any) -> None:
    async with start(auth=FREE, server={"public_url": "https://gw.example"}) as gateway:
        identity = gateway.house.identity
        assert await identity.sign_in_code() is None
        code = await identity.browsers.new_code(("default", "owner"))
        async with httpx.AsyncClient(verify=False, base_url=gateway.base, headers={"host": "gw.example"}) as http:
            made = (await http.post("/oauth/register", json={"redirect_uris": ["https://app.example/cb"]})).json()
            program = OAuthTestClient("https://gw.example", made["client_id"], "https://app.example/cb")
            path = program.authorization_url(pkce_pair()[1]).removeprefix("https://gw.example")
            shown = await http.get(path)
            assert "Code from the terminal" not in shown.text
            cookie = shown.headers["set-cookie"].partition(";")[0]
            form = {"csrf": csrf(shown.text), "what": "code", "code": code}
            answer = await http.post(path, data=form, headers={"cookie": cookie})
        assert (answer.status_code, "not good" in answer.text) == (200, True)
