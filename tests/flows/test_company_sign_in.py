"""Sign-in with a company's identity provider: from the consent page to a call, and until access ends."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.test_oauth import BACKENDS, Memory, run_typescript_client, signed_in
from tests.peers.company import CompanyProvider, CompanyUser, company_provider, free_port
from tests.peers.oauth_flow import CALLBACK, OAuthTestClient
from tests.peers.stdio_bridge import Browser, StdioBridge

Json = dict[str, Any]
FREE = {"registration_rate": "1000/minute", "authorize_rate": "10000/minute", "token_rate": "10000/minute"}
TENANTS: Json = {"default": {}, "acme": {}}


@pytest.fixture(scope="module", params=["plain", "strict", "short"])
def any_provider(request: pytest.FixtureRequest) -> Iterator[CompanyProvider]:
    """A provider: plain, refusing `resource` and registration as Entra does, and with short, rotating tokens."""
    options: dict[str, Any] = {} if request.param == "plain" else {request.param: True}
    with company_provider(**options) as running:
        yield running


@pytest.fixture(scope="module")
def provider() -> Iterator[CompanyProvider]:
    with company_provider(short=True) as running:
        yield running


def options(provider: CompanyProvider, entry: Json | None = None, **auth: Any) -> Json:
    return {
        "auth": {**FREE, "providers": {"company": provider.settings(**(entry or {}))}, **auth},
        "tenants": TENANTS,
        "backends": BACKENDS,
        "server": {"port": provider.port},
    }


async def caller_of(gateway: Any, tokens: Json) -> Any:
    return await gateway.app.identity.authenticate({"authorization": f"Bearer {tokens['access_token']}"}, "")


async def test_user_signs_in_at_the_provider_and_calls_a_tool(any_provider: CompanyProvider, start: Any) -> None:
    any_provider.order(user="alice", groups=["dev", "staff"])
    async with start(**options(any_provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        user = CompanyUser()
        tokens = await client.sign_in(user)
        caller = await caller_of(gateway, tokens)
        assert (caller.principal, caller.groups) == ("acme/user:company:alice", {"builders"})
        assert caller.scopes == {"mcp:list", "mcp:call"}
        assert (await gateway.as_(tokens["access_token"]).call("lab_look"))["result"]["content"][0]["text"] == "looked"
        assert not any("resource" in request for request in any_provider.order())
        # The refresh asks the provider, also a second time with the provider's rotated token.
        for _ in range(2):
            answer = await client.refresh(tokens["refresh_token"])
            assert answer.status_code == 200, answer.text
            tokens = answer.json()
            assert "POST /token" in any_provider.order()


# ---- the confused deputy: consent comes before the provider, in the same browser


async def test_threat_52_consent_page_precedes_the_redirect_to_the_provider(
    provider: CompanyProvider, start: Any
) -> None:
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base, client_name="Evil <b>helper</b>")
        first = CompanyUser()
        await client.sign_in(first)
        # The browser is signed in at the provider and at the gateway; another client still needs consent.
        other = await OAuthTestClient.register(gateway.base, client_name="Other")
        for forget in (False, True):
            if forget:
                first.cookies.delete("gatehouse")
            first.pages.clear()
            await other.sign_in(first)
            page = first.pages[0]
            assert page.status_code == 200
            assert "Allow Other?" in page.text
            assert "127.0.0.1:8765" in page.text
            assert page.headers["x-frame-options"] == "DENY"


async def test_denied_consent_returns_to_the_client_without_a_visit_to_the_provider(
    provider: CompanyProvider, start: Any
) -> None:
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        provider.order()
        answer = await CompanyUser(decision="deny").visit(client.authorization_url("x" * 43))
        assert (answer["error"], answer["iss"]) == ("access_denied", gateway.base)
        assert provider.order() == []


async def callback_of(gateway: Any, user: CompanyUser) -> str:
    """Return the redirect of the provider to the gateway, not yet followed."""
    client = await OAuthTestClient.register(gateway.base)
    stopped = CompanyUser(user.name, user.provider, f"/oauth/callback/{user.provider}", cookies=user.cookies)
    answer = await stopped.follow(client.authorization_url("x" * 43))
    return answer.headers["location"]


async def test_threat_52_redirect_of_the_provider_works_only_once_and_in_the_browser_that_started_it(
    provider: CompanyProvider, start: Any
) -> None:
    async with start(**options(provider)) as gateway:
        user = CompanyUser()
        redirect = await callback_of(gateway, user)
        other = await CompanyUser().follow(redirect)
        assert other.status_code == 403
        assert "started in another browser" in other.text
        assert "gatehouse=" not in other.headers.get("set-cookie", "")
        done = await user.follow(redirect)
        assert done.headers["location"].startswith(CALLBACK)
        assert (await user.follow(redirect)).status_code == 403


async def test_threat_50_redirect_with_another_issuer_or_without_one_is_refused(
    provider: CompanyProvider, start: Any
) -> None:
    async with start(**options(provider)) as gateway:
        for issuer in ("https://evil.example", ""):
            user = CompanyUser()
            url = httpx.URL(await callback_of(gateway, user))
            assert url.params["iss"] == provider.issuer  # the provider announces RFC 9207
            changed = url.copy_set_param("iss", issuer) if issuer else url.copy_remove_param("iss")
            answer = await user.follow(str(changed))
            assert answer.status_code == 403
            assert "another identity provider" in answer.text


async def test_threat_50_code_of_one_provider_is_not_redeemed_at_another(start: Any) -> None:
    """A mix-up: the user starts at one provider, and the redirect reaches the address of the other."""
    port = free_port()
    with company_provider("one", port) as one, company_provider("two", port) as two:
        given: Json = {
            "auth": {**FREE, "providers": {"one": one.settings(), "two": two.settings()}},
            "tenants": TENANTS, "server": {"port": port},
        }  # fmt: skip
        async with start(**given) as gateway:
            user = CompanyUser(provider="one")
            redirect = await callback_of(gateway, user)
            two.order()
            answer = await user.follow(redirect.replace("/callback/one", "/callback/two"))
            assert answer.status_code == 403
            assert "POST /token" not in two.order()
            # Both providers have a user alice: they are different accounts.
            for name in ("one", "two"):
                client = await OAuthTestClient.register(gateway.base)
                tokens = await client.sign_in(CompanyUser(provider=name))
                assert (await caller_of(gateway, tokens)).subject == f"{name}:alice"


# ---- accounts and rules


async def test_threat_51_same_email_address_does_not_link_accounts(provider: CompanyProvider, start: Any) -> None:
    async with start(**options(provider, local_users=True)) as gateway:
        await gateway.app.identity.users.put("acme", "alice@example.com", "correct horse battery", {"mcp:admin"})
        client = await OAuthTestClient.register(gateway.base)
        caller = await caller_of(gateway, await client.sign_in(CompanyUser()))
        assert caller.subject == "company:alice"
        assert "mcp:admin" not in caller.scopes
        users = {user.subject: user for user in await gateway.app.identity.users.list("acme")}
        assert users["alice@example.com"].has_password
        assert not users["company:alice"].has_password


async def test_user_without_a_matching_group_sees_whom_to_ask(provider: CompanyProvider, start: Any) -> None:
    provider.order(user="carol", groups=["visitors"])
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        page = await CompanyUser("carol").follow(client.authorization_url("x" * 43))
        assert page.status_code == 403
        assert "carol of the company" in page.text
        assert "Ask it@example.com." in page.text
        assert await gateway.app.identity.users.list("acme") == []


async def test_unverified_email_address_does_not_satisfy_allowed_domains(provider: CompanyProvider, start: Any) -> None:
    async with start(**options(provider, {"allowed_domains": ["example.com"]})) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        provider.order(user="dora", groups=["dev"], verified=False)
        page = await CompanyUser("dora").follow(client.authorization_url("x" * 43))
        assert (page.status_code, "allowed domain" in page.text) == (403, True)
        provider.order(user="dora", groups=["dev"])
        await client.sign_in(CompanyUser("dora"))


async def test_passwords_are_refused_beside_providers_unless_enabled(provider: CompanyProvider, start: Any) -> None:
    async with start(**options(provider)) as gateway:
        await gateway.app.identity.users.put("default", "lena", "correct horse battery", {"mcp:list"})
        client = await OAuthTestClient.register(gateway.base)
        async with httpx.AsyncClient() as http:
            page = await http.get(client.authorization_url("x" * 43))
            assert 'name="password"' not in page.text
            csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
            assert csrf is not None
            form = {"csrf": csrf[1], "what": "password", "name": "lena", "password": "correct horse battery"}
            answer = await http.post(str(page.url), data=form)
            assert "Wrong name or password." in answer.text


async def test_administrator_enters_the_console_and_others_do_not(provider: CompanyProvider, start: Any) -> None:
    provider.order(user="chief", groups=["chiefs", "dev"])
    provider.order(user="alice", groups=["dev"])
    async with start(**options(provider)) as gateway:
        chief = CompanyUser("chief", until="/console")
        await chief.follow(f"{gateway.base}/console")
        async with httpx.AsyncClient(cookies=chief.cookies) as http:
            assert "Overview" in (await http.get(f"{gateway.base}/console")).text
        page = await CompanyUser("alice", until="/console").follow(f"{gateway.base}/console")
        assert page.status_code == 403
        assert "requires the scope mcp:admin" in page.text


async def test_stdio_bridge_signs_in_at_the_provider_and_refreshes(
    provider: CompanyProvider, start: Any, tmp_path: Path
) -> None:
    provider.order(user="alice", groups=["dev"])
    async with start(**options(provider)) as gateway:
        browser = Browser(CompanyUser())
        bridged = StdioBridge(gateway, tmp_path / "user", browser)
        assert (await bridged.call("lab_look"))["result"]["content"][0]["text"] == "looked"
        bridged.token_store.write(replace(bridged.stored_tokens, access_token="expired"))
        again = StdioBridge(gateway, tmp_path / "user", browser)
        assert (await again.call("lab_look"))["result"]["content"][0]["text"] == "looked"
        assert len(browser.opened_urls) == 1


async def test_python_sdk_client_signs_in_with_the_address_alone(any_provider: CompanyProvider, start: Any) -> None:
    any_provider.order(user="alice", groups=["dev"])
    async with (
        start(**options(any_provider)) as gateway,
        signed_in(gateway, CompanyUser(), Memory(), "2026-07-28") as client,  # type: ignore[arg-type]
    ):
        result = await client.call_tool("lab_look", {})
        assert result.content[0].text == "looked"  # type: ignore[union-attr]


# ---- the end of access


async def test_removed_user_is_refused_at_the_next_refresh(
    provider: CompanyProvider, start: Any, database_url: str | None
) -> None:
    provider.order(user="bob", groups=["dev"])
    async with start(**options(provider), database={"url": database_url}) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(CompanyUser("bob"))
        caller = await caller_of(gateway, tokens)
        assert await gateway.app.identity.is_valid(caller)
        key = await gateway.new_key("acme", "company:bob")
        assert (await gateway.as_(key).post("tools/list")).status_code == 200
        provider.order(remove="bob")
        answer = await client.refresh(tokens["refresh_token"])
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
        for credential in (tokens["access_token"], key):
            assert (await gateway.as_(credential).post("tools/list")).status_code == 401
        # Tasks that run for the user ask this.
        assert not await gateway.app.identity.is_valid(caller)


async def test_lost_group_narrows_tokens_and_keys_at_the_next_refresh(provider: CompanyProvider, start: Any) -> None:
    provider.order(user="erin", groups=["dev", "staff"])
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        before = await client.sign_in(CompanyUser("erin"))
        key = await gateway.new_key("acme", "company:erin")
        provider.order(user="erin", groups=["staff"])
        after = (await client.refresh(before["refresh_token"])).json()
        assert (await caller_of(gateway, after)).scopes == {"mcp:list"}
        assert (await caller_of(gateway, {"access_token": key})).scopes == {"mcp:list"}
        # The earlier token carried more, so it ends.
        assert (await gateway.as_(before["access_token"]).post("tools/list")).status_code == 401


async def test_api_key_of_a_removed_user_is_refused_within_the_recheck_time(
    provider: CompanyProvider, start: Any, database_url: str | None
) -> None:
    provider.order(user="finn", groups=["dev"])
    async with start(**options(provider, recheck=2.0), database={"url": database_url}) as gateway:
        await (await OAuthTestClient.register(gateway.base)).sign_in(CompanyUser("finn"))
        key = gateway.as_(await gateway.new_key("acme", "company:finn"))
        assert (await key.post("tools/list")).status_code == 200
        provider.order(remove="finn")
        async with asyncio.timeout(4.0):
            while (await key.post("tools/list")).status_code == 200:
                await asyncio.sleep(0.05)


async def test_unreachable_provider_is_tolerated_for_the_grace_period(start: Any) -> None:
    with company_provider(short=True) as provider:
        provider.order(user="alice", groups=["dev"])
        async with start(**options(provider, recheck=1.0, recheck_grace=3.0)) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            tokens = await client.sign_in(CompanyUser())
            key = gateway.as_(await gateway.new_key("acme", "company:alice"))
            provider.order(down=True)
            answer = await client.refresh(tokens["refresh_token"])
            assert answer.status_code == 200, answer.text
            tokens = answer.json()
            assert (await key.post("tools/list")).status_code == 200
            async with asyncio.timeout(10.0):
                while (await key.post("tools/list")).status_code == 200:
                    await asyncio.sleep(0.05)
            late = await client.refresh(tokens["refresh_token"])
            assert (late.status_code, late.json()["error"]) == (503, "temporarily_unavailable")
            # When the provider is back, the same refresh token works and the key is accepted again.
            provider.order(down=False)
            answer = await client.refresh(tokens["refresh_token"])
            assert answer.status_code == 200, answer.text
            assert (await key.post("tools/list")).status_code == 200


async def test_user_without_a_refresh_token_of_the_provider_signs_in_again_after_max_age(start: Any) -> None:
    with company_provider(no_refresh=True) as provider:
        provider.order(user="alice", groups=["dev"])
        async with start(**options(provider, max_age=3.0)) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            tokens = await client.sign_in(CompanyUser())
            answer = await client.refresh(tokens["refresh_token"])
            assert answer.status_code == 200, answer.text
            tokens = answer.json()
            async with asyncio.timeout(10.0):
                while (answer := await client.refresh(tokens["refresh_token"])).status_code == 200:
                    tokens = answer.json()
                    await asyncio.sleep(0.1)
            assert answer.json()["error"] == "invalid_grant"
            await client.sign_in(CompanyUser())


async def test_suspended_user_is_refused_everywhere_until_resumed(provider: CompanyProvider, start: Any) -> None:
    provider.order(user="gina", groups=["dev"])
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(CompanyUser("gina"))
        key = await gateway.new_key("acme", "company:gina")
        assert await gateway.app.identity.users.suspend("acme", "company:gina")
        for credential in (tokens["access_token"], key):
            assert (await gateway.as_(credential).post("tools/list")).status_code == 401
        assert (await client.refresh(tokens["refresh_token"])).status_code == 400
        page = await CompanyUser("gina").follow(client.authorization_url("x" * 43))
        assert (page.status_code, "suspended" in page.text) == (403, True)
        assert await gateway.app.identity.users.resume("acme", "company:gina")
        await client.sign_in(CompanyUser("gina"))
        # A rejected credential is remembered for a second.
        async with asyncio.timeout(3.0):
            while (await gateway.as_(key).post("tools/list")).status_code != 200:
                await asyncio.sleep(0.05)


async def test_back_channel_logout_ends_sessions_and_tokens_at_once(provider: CompanyProvider, start: Any) -> None:
    provider.order(user="hugo", groups=["dev"])
    async with start(**options(provider)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        user = CompanyUser("hugo")
        tokens = await client.sign_in(user)
        await asyncio.to_thread(provider.order, logout="hugo")  # it sends the logout token before it answers
        assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 401
        assert (await client.refresh(tokens["refresh_token"])).status_code == 400
        async with httpx.AsyncClient(cookies=user.cookies) as http:
            page = await http.get(client.authorization_url("x" * 43))
            assert "sign in with Company" in page.text
            for token in ("", "a.b.c", tokens["access_token"]):
                answer = await http.post(f"{gateway.base}/oauth/logout/company", data={"logout_token": token})
                assert answer.status_code == 400


async def test_threat_53_tokens_of_the_provider_are_not_readable_in_the_database(
    provider: CompanyProvider, start: Any
) -> None:
    provider.order(user="alice", groups=["dev"])
    async with start(**options(provider)) as gateway:
        await (await OAuthTestClient.register(gateway.base)).sign_in(CompanyUser())
        federated = gateway.app.identity.providers.federated
        user = await federated.find(("acme", "company:alice"))
        token = federated.credential(user)["refresh_token"]
        assert len(token) > 20
        async with gateway.app.database.reading() as connection:
            rows = (await connection.exec_driver_sql("SELECT * FROM federated_users")).all()
        assert rows
        assert token not in str(rows)
        assert token not in gateway.log.getvalue()
        # A row copied to another account does not open.
        assert federated.credential(replace(user, external_subject="mallory")) == {}


async def test_administrator_signs_in_with_a_code_while_the_provider_is_down(start: Any) -> None:
    with company_provider() as provider:
        given = options(provider)
        # Not a loopback address: codes of the local owner are otherwise accepted on loopback only.
        given["server"] |= {"public_url": f"http://localhost.example:{provider.port}"}
        async with start(**given) as gateway:
            assert not gateway.app.identity.local
            provider.order(down=True)
            client = await OAuthTestClient.register(gateway.base)
            code = await gateway.app.identity.browser_sessions.new_code(("default", "owner"), 900)
            await gateway.app.identity.users.put("default", "owner", None, {"mcp:admin", "mcp:list"})
            async with httpx.AsyncClient() as http:
                url = client.authorization_url("x" * 43, resource=None)
                page = await http.get(url)
                assert "Use a sign-in code" in page.text
                csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
                assert csrf is not None
                broken = await http.post(url, data={"csrf": csrf[1], "what": "provider", "provider": "company"})
                assert "cannot be used at the moment" in broken.text
                answer = await http.post(url, data={"csrf": csrf[1], "what": "code", "code": code})
                assert answer.status_code == 303
                assert "gatehouse=" in answer.headers["set-cookie"]


async def test_concurrent_refreshes_on_two_replicas_use_each_token_of_the_provider_once(
    provider: CompanyProvider, run: Any, tmp_path: Path, postgres_url: str
) -> None:
    """The provider rotates its refresh tokens and ends the grant if one is used twice."""
    provider.order(user="nora", groups=["dev"])
    given = options(provider) | {"database": {"url": postgres_url}}
    async with run(tmp_path, **given) as one:
        async with run(tmp_path, **{**given, "server": {"port": 0, "public_url": one.base}}) as two:
            clients = [await OAuthTestClient.register(one.base) for _ in range(6)]
            tokens = [(await client.sign_in(CompanyUser("nora")))["refresh_token"] for client in clients]
            for _ in range(3):
                bases = [(one, two)[index % 2].base for index in range(6)]
                answers = await asyncio.gather(
                    *(
                        replace(client, base=base).refresh(token)
                        for client, base, token in zip(clients, bases, tokens, strict=True)
                    )
                )
                assert [answer.status_code for answer in answers] == [200] * 6, [each.text for each in answers]
                tokens = [answer.json()["refresh_token"] for answer in answers]


@pytest.mark.parametrize("era", ["2026-07-28", "handshake"])
async def test_typescript_client_signs_in_refreshes_and_asks_for_another_scope(
    any_provider: CompanyProvider, start: Any, era: str
) -> None:
    any_provider.order(user="alice", groups=["dev"])
    given = options(any_provider, {"rules": [{"group": "dev", "tenant": "acme"}]}, scopes=["mcp:list", "mcp:call"])
    async with start(**given) as gateway:
        results = await run_typescript_client(gateway, era, CompanyUser())  # type: ignore[arg-type]
    assert (results["looked"], results["saved"], results["refreshed"]) == ("looked", "saved x", True)
