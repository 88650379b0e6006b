"""Accounts of users at a remote server that has its own OAuth and checks every token."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from mcp import types
from sqlalchemy import text as sql

from tests.mcp_results import text_of
from tests.peers.account_server import AccountServer
from tests.peers.account_user import AccountUser, add_user, csrf_of

TENANTS = {"default": {}, "globex": {}}


@pytest.fixture
async def server() -> AsyncIterator[AccountServer]:
    async with AccountServer().running() as running:
        yield running


def settings(server: AccountServer, **account: Any) -> dict[str, Any]:
    entry = {"url": server.url, "allow_private": True, "account": account or {"oauth": {}}}
    return {"backends": {"hub": entry}, "tenants": TENANTS}


async def connect(gateway: Any, server: AccountServer, tenant: str, name: str, login: str) -> tuple[Any, AccountUser]:
    """Create a user, connect the account `login`, and return the gateway as that user."""
    user = await add_user(gateway, tenant, name)
    server.login = login
    page = await user.connect(f"{gateway.base}/accounts/connect/hub")
    assert "hub is connected" in page.text, page.text
    return gateway.as_(await gateway.new_key(tenant, name)), user


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


async def test_each_user_calls_with_the_own_account_and_no_other_credential(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, _ = await connect(gateway, server, "default", "alice", "alice-at-hub")
        bob, _ = await connect(gateway, server, "default", "bob", "bob-at-hub")
        other, _ = await connect(gateway, server, "globex", "alice", "alice-of-globex")
        logins = ("alice-at-hub", "bob-at-hub", "alice-of-globex")
        for caller, login in zip((alice, bob, other), logins, strict=True):
            assert text(await caller.call("hub_whoami")) == login
            async with caller.client("legacy") as client:
                assert text_of((await client.call_tool("hub_whoami", {})).content[0]) == login
        sent = "".join(map(repr, server.seen_headers))
        assert all(each.key not in sent for each in (alice, bob, other))
        assert server.rejected == []


async def test_lists_of_a_user_are_read_with_the_own_account(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, user = await connect(gateway, server, "default", "alice", "octocat")
        await alice.wait_for_tool("hub_of_octocat")
        bob = gateway.as_(await gateway.new_key("default", "bob"))
        listed = (await bob.post("tools/list")).text
        assert "of_octocat" not in listed
        assert "Needs your own account at hub" in listed
        assert f"{gateway.base}/accounts" in listed
        await user.submit(await user.open(f"{gateway.base}/accounts"), action="/accounts/disconnect/hub")
        async with asyncio.timeout(10):
            while "of_octocat" in (await alice.post("tools/list")).text:
                await asyncio.sleep(0.05)


async def test_call_without_account_is_an_error_with_a_link_that_then_makes_the_call_work(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        user = await add_user(gateway, "default", "alice")
        answer = await gateway.call("hub_whoami")
        error = answer["result"]["structuredContent"]["error"]
        assert error["code"] == "ACCOUNT_REQUIRED"
        link = error["details"]["url"]
        assert link in error["suggested_fix"]
        assert link in text(answer)
        assert link.startswith(f"{gateway.base}/accounts/connect/hub?ticket=")
        assert "is connected" in (await user.connect(link)).text
        assert text(await gateway.call("hub_whoami")) == "octocat"


class Elicited:
    """A client's user who opens the link of an elicitation in the browser."""

    def __init__(self, user: AccountUser, action: str = "accept") -> None:
        self._user = user
        self._action = action
        self.requests: list[Any] = []
        self._browsing: asyncio.Task[Any] | None = None

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.requests.append(params)
        if self._action == "accept":
            self._browsing = asyncio.create_task(self._user.connect(params.url))
        return types.ElicitResult(action=self._action)  # pyright: ignore[reportArgumentType]


async def test_call_waits_for_the_user_who_opens_the_elicited_link_and_goes_on_by_itself(
    start: Any, server: AccountServer, era: str
) -> None:
    async with start(**settings(server)) as gateway:
        await gateway.wait_for_tool("hub_whoami")
        elicited = Elicited(await add_user(gateway, "default", "alice"))
        async with gateway.client(era, elicitation_callback=elicited) as client:
            result = await client.call_tool("hub_whoami", {})
        assert text_of(result.content[0]) == "octocat"
        assert [each.mode for each in elicited.requests] == ["url"]
        assert "needs your own account" in elicited.requests[0].message


async def test_declined_link_ends_the_call(start: Any, server: AccountServer, era: str) -> None:
    async with start(**settings(server)) as gateway:
        await gateway.wait_for_tool("hub_whoami")
        elicited = Elicited(await add_user(gateway, "default", "alice"), "decline")
        async with gateway.client(era, elicitation_callback=elicited) as client:
            result = await client.call_tool("hub_whoami", {})
        assert result.is_error
        assert len(elicited.requests) == 1


async def test_client_of_2025_that_takes_no_stream_gets_the_url_elicitation_error(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        await gateway.wait_for_tool("hub_whoami")
        headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json"}
        capabilities = {"elicitation": {"url": {}}}
        info = {"name": "plain", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        async with httpx.AsyncClient(headers=headers, timeout=30) as http:
            opened = await http.post(
                gateway.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            )
            session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "hub_whoami"}}
            error = (await http.post(gateway.url, json=call, headers=session)).json()["error"]
        assert error["code"] == -32042
        elicitation = error["data"]["elicitations"][0]
        assert elicitation["mode"] == "url"
        assert elicitation["url"].startswith(f"{gateway.base}/accounts/connect/hub?ticket=")
        assert elicitation["elicitationId"]


async def test_missing_scopes_are_asked_for_and_the_call_goes_on(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, user = await connect(gateway, server, "default", "alice", "octocat")
        assert text(await alice.call("hub_whoami")) == "octocat"
        server.required_scope = "write"
        elicited = Elicited(user)
        async with alice.client(elicitation_callback=elicited) as client:
            result = await client.call_tool("hub_whoami", {})
        assert text_of(result.content[0]) == "octocat"
        assert "more permissions" in elicited.requests[0].message
        granted = [each.scopes for each in server.access.values()]
        assert granted == ["read", "read write"]


async def test_expired_token_is_refreshed_once_for_concurrent_calls(start: Any, server: AccountServer) -> None:
    server.lifetime = 1.0
    async with start(**settings(server)) as gateway:
        alice, _ = await connect(gateway, server, "default", "alice", "octocat")
        assert text(await alice.call("hub_whoami")) == "octocat"
        server.refreshes.clear()
        server.lifetime = 3600
        async with asyncio.timeout(10):
            while not server.refreshes:
                answers = await asyncio.gather(*(alice.call("hub_whoami") for _ in range(8)))
                assert [text(each) for each in answers] == ["octocat"] * 8
        assert server.refreshes == {"octocat": 1}
        assert server.rejected == []


async def test_revoked_token_is_replaced_and_the_call_succeeds(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, _ = await connect(gateway, server, "default", "alice", "octocat")
        for issued in server.access.values():
            issued.revoked = True
        assert text(await alice.call("hub_whoami")) == "octocat"
        assert server.refreshes == {"octocat": 1}


async def test_account_whose_refresh_token_is_refused_has_to_be_connected_again(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        alice, user = await connect(gateway, server, "default", "alice", "octocat")
        for issued in (*server.access.values(), *server.refresh.values()):
            issued.revoked = True
        answer = await alice.call("hub_whoami")
        assert "has to be connected again" in text(answer)
        assert "reconnect needed" in (await user.open(f"{gateway.base}/accounts")).text
        assert server.refused_grants == {"octocat": 1}
        await user.connect(answer["result"]["structuredContent"]["error"]["details"]["url"])
        assert text(await alice.call("hub_whoami")) == "octocat"


async def test_disconnect_revokes_both_tokens_at_the_server(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, user = await connect(gateway, server, "default", "alice", "octocat")
        tokens = {*server.access, *server.refresh}
        page = await user.submit(await user.open(f"{gateway.base}/accounts"), action="/accounts/disconnect/hub")
        assert "not connected" in page.text
        assert set(server.revocations) == tokens
        assert "not connected yet" in text(await alice.call("hub_whoami"))


async def test_removed_user_leaves_no_account_to_a_later_user_of_the_same_name(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        await connect(gateway, server, "default", "alice", "octocat")
        assert await gateway.app.identity.users.remove("default", "alice")
        async with gateway.app.database.reading() as connection:
            assert (await connection.execute(sql("SELECT principal FROM accounts"))).all() == []


async def test_personal_key_is_sent_in_the_configured_header_for_its_owner_alone(
    start: Any, server: AccountServer
) -> None:
    key = {"header": "Authorization", "template": "Bearer {key}", "help": "Create one at hub."}
    async with start(**settings(server, key=key)) as gateway:
        user = await add_user(gateway, "default", "alice")
        answer = server._issue("octocat", "read", "")
        page = await user.open(f"{gateway.base}/accounts/connect/hub")
        assert "Create one at hub." in page.text
        done = await user.submit(page, key=answer["access_token"])
        assert "is connected" in done.text
        assert answer["access_token"] not in done.text
        assert text(await gateway.call("hub_whoami")) == "octocat"
        bob = gateway.as_(await gateway.new_key("default", "bob"))
        assert "not connected yet" in text(await bob.call("hub_whoami"))


async def test_key_with_a_line_break_is_refused(start: Any, server: AccountServer) -> None:
    async with start(**settings(server, key={})) as gateway:
        user = await add_user(gateway, "default", "alice")
        page = await user.open(f"{gateway.base}/accounts/connect/hub")
        refused = await user.submit(page, key="abc\r\nx-admin: 1")
        assert refused.status_code == 400
        assert await gateway.app.accounts.store.list() == []


# ---- threats ----


async def test_threat_55_answer_of_another_issuer_is_refused_and_no_code_is_redeemed(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        user = await add_user(gateway, "default", "alice")
        for issuer in ("https://evil.example", f"{server.base}/"):
            server.wrong_issuer = issuer
            page = await user.connect(f"{gateway.base}/accounts/connect/hub")
            assert page.status_code == 400
            assert "another authorization server" in page.text
        assert len(server.codes) == 2  # issued, but not sent anywhere
        assert await gateway.app.accounts.store.list() == []


async def test_threat_55_missing_issuer_is_refused_if_the_server_announces_it(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        user = await add_user(gateway, "default", "alice")
        link = f"{gateway.base}/accounts/connect/hub"
        callback = await _callback_of(user, server, link)
        callback.pop("iss")
        page = await user.open(f"{gateway.base}/accounts/callback/hub?{httpx.QueryParams(callback)}")
        assert page.status_code == 400
        assert await gateway.app.accounts.store.list() == []


async def test_threat_56_callback_of_another_browser_links_no_account(start: Any, server: AccountServer) -> None:
    """Mallory sends Alice a callback with Mallory's own code, so that Alice would work in Mallory's account."""
    async with start(**settings(server)) as gateway:
        alice, mallory = [await add_user(gateway, "default", name) for name in ("alice", "mallory")]
        server.login = "mallory-at-hub"
        callback = await _callback_of(mallory, server, f"{gateway.base}/accounts/connect/hub")
        await alice.open(f"{gateway.base}/accounts")
        page = await alice.open(f"{gateway.base}/accounts/callback/hub?{httpx.QueryParams(callback)}")
        assert page.status_code == 400
        assert await gateway.app.accounts.store.list() == []


async def test_threat_56_person_who_changed_in_the_same_browser_gets_no_account(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        alice, mallory = [await add_user(gateway, "default", name) for name in ("alice", "mallory")]
        callback = await _callback_of(mallory, server, f"{gateway.base}/accounts/connect/hub")
        flow = {name: value for name, value in mallory.cookies.items() if "connect" in name}
        await alice.open(f"{gateway.base}/accounts")
        for name, value in flow.items():
            alice.cookies.set(name, value)
        page = await alice.open(f"{gateway.base}/accounts/callback/hub?{httpx.QueryParams(callback)}")
        assert page.status_code == 400
        assert await gateway.app.accounts.store.list() == []


async def test_threat_58_link_made_for_another_person_connects_nothing(start: Any, server: AccountServer) -> None:
    """Mallory sends her own link to Alice, so that Alice's account would be stored for Mallory."""
    async with start(**settings(server)) as gateway:
        mallory = gateway.as_(await gateway.new_key("default", "mallory"))
        link = (await mallory.call("hub_whoami"))["result"]["structuredContent"]["error"]["details"]["url"]
        alice = await add_user(gateway, "default", "alice")
        page = await alice.open(link)
        assert page.status_code == 403
        assert "made for another person" in page.text
        form = await alice.open(f"{gateway.base}/accounts/connect/hub")
        forced = await alice.submit(form, action=link)
        assert forced.status_code == 403
        assert await gateway.app.accounts.store.list() == []
        assert server.codes == {}


async def test_threat_58_page_is_shown_before_the_redirect_and_forms_need_the_own_token(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        alice, mallory = [await add_user(gateway, "default", name) for name in ("alice", "mallory")]
        page = await alice.open(f"{gateway.base}/accounts/connect/hub")
        assert page.status_code == 200
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        foreign = await mallory.open(f"{gateway.base}/accounts/connect/hub")
        refused = await alice.submit(foreign)
        assert refused.status_code == 403
        assert server.codes == {}


async def test_threat_59_tokens_are_in_no_log_no_answer_and_no_row(
    start: Any, server: AccountServer, tmp_path: Any
) -> None:
    async with start(**settings(server), log={"level": "debug", "format": "json"}) as gateway:
        alice, user = await connect(gateway, server, "default", "alice", "octocat")
        answers = [str(await alice.call("hub_whoami")), (await user.open(f"{gateway.base}/accounts")).text]
        for issued in server.access.values():
            issued.revoked = True
        answers.append(str(await alice.call("hub_whoami")))
        for issued in (*server.access.values(), *server.refresh.values()):
            issued.revoked = True
        answers.append(str(await alice.call("hub_whoami")))
        log = gateway.log.getvalue()
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(server.access) >= 2
    assert b"canary-" not in files
    assert "canary-" not in log + "".join(answers)


async def test_administrator_sees_who_is_connected_and_may_disconnect_within_the_tenant(
    start: Any, server: AccountServer
) -> None:
    async with start(**settings(server)) as gateway:
        await connect(gateway, server, "default", "alice", "octocat")
        await connect(gateway, server, "globex", "eve", "eve")
        boss = await add_user(gateway, "default", "boss", scopes=("mcp:list", "mcp:admin"))
        page = await boss.open(f"{gateway.base}/accounts")
        assert "default/user:alice" in page.text
        assert "globex" not in page.text
        action = "/accounts/disconnect/hub"
        refused = await boss.submit(page, action=action, principal="globex/user:eve")
        assert refused.status_code == 403
        await boss.submit(page, action=action, principal="default/user:alice")
        assert [each.principal for each in await gateway.app.accounts.store.list()] == ["globex/user:eve"]


async def test_api_lists_links_and_disconnects_the_callers_own_accounts(start: Any, server: AccountServer) -> None:
    async with start(**settings(server)) as gateway:
        alice, _ = await connect(gateway, server, "default", "alice", "octocat")
        bob = gateway.as_(await gateway.new_key("default", "bob"))
        api = f"{gateway.base}/api/v1/accounts"
        async with httpx.AsyncClient(timeout=30) as http:

            async def ask(method: str, key: str, path: str = "") -> httpx.Response:
                return await http.request(method, api + path, headers={"authorization": f"Bearer {key}"})

            assert [each["state"] for each in (await ask("GET", alice.key)).json()] == ["connected"]
            assert [each["state"] for each in (await ask("GET", bob.key)).json()] == ["missing"]
            assert (await ask("GET", bob.key, "?all=true")).status_code == 403
            assert (await ask("DELETE", bob.key, "/hub?principal=default/user:alice")).status_code == 403
            assert (await ask("POST", bob.key, "/nothing/link")).status_code == 404
            assert "/accounts/connect/hub?ticket=" in (await ask("POST", bob.key, "/hub/link")).json()["url"]
            assert (await ask("DELETE", alice.key, "/hub")).status_code == 200
            assert (await ask("DELETE", alice.key, "/hub")).status_code == 404
            assert (await http.get(api)).status_code == 401


async def test_server_that_hides_its_lists_is_usable_once_connected(start: Any, server: AccountServer) -> None:
    server.public_lists = False
    async with start(**settings(server)) as gateway:
        assert "hub_" not in (await gateway.post("tools/list")).text
        alice, _ = await connect(gateway, server, "default", "alice", "octocat")
        await alice.wait_for_tool("hub_whoami")
        assert text(await alice.call("hub_whoami")) == "octocat"


async def _callback_of(user: AccountUser, server: AccountServer, link: str) -> dict[str, str]:
    """Walk the flow up to the redirect back to the gateway, and return that redirect's query without following it."""
    page = await user.open(link)
    async with user._browser() as http:
        leaving = await http.post(page.url, data={"csrf": csrf_of(page.text)})
        found = re.search(r'href="(http[^"]+/authorize[^"]+)"', leaving.text)
        assert found is not None, leaving.text
        user.cookies.update(http.cookies)
        answer = await http.get(html.unescape(found[1]))
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))
