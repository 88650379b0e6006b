"""Sign-in, groups, logout and removal with a real Keycloak. `make idp-test` runs it."""

import asyncio
import html
import os
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.flows.test_company_sign_in import FREE, TENANTS, caller_of
from tests.peers.company import CompanyUser, free_port
from tests.peers.keycloak import Keycloak, keycloak
from tests.peers.oauth_flow import OAuthTestClient

pytestmark = pytest.mark.skipif("GATEHOUSE_IDP" not in os.environ, reason="a real Keycloak: make idp-test")
Json = dict[str, Any]


class KeycloakUser(CompanyUser):
    """Signs in on Keycloak's own page."""

    async def _submit(self, http: httpx.AsyncClient, page: httpx.Response) -> httpx.Response:
        form = re.search(r'id="kc-form-login"[^>]*action="([^"]+)"', page.text)
        if form is None:
            return await super()._submit(http, page)
        data = {"username": self.name, "password": "password", "credentialId": ""}
        return await http.post(html.unescape(form[1]), data=data)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Keycloak]:
    with keycloak() as running:
        running.create_realm(f"http://127.0.0.1:{port}", "keycloak")
        yield running


def options(server: Keycloak, port: int, **auth: Any) -> Json:
    rules = [
        {"group": "dev", "tenant": "acme", "groups": ["builders"]},
        {"group": "staff", "tenant": "acme", "scopes": ["mcp:list"]},
    ]
    entry: Json = {
        "preset": "keycloak", "issuer": server.issuer, "allow_private": True, "client_id": "gatehouse",
        "client_secret": "keycloak-secret", "rules": rules, "admin_group": "chiefs",
    }  # fmt: skip
    return {
        "auth": {**FREE, "providers": {"keycloak": entry}, **auth}, "tenants": TENANTS, "server": {"port": port},
    }  # fmt: skip


async def test_user_signs_in_with_groups_and_loses_a_group_at_the_next_refresh(
    server: Keycloak, port: int, start: Any
) -> None:
    user = server.create_user("anna", "dev", "staff")
    async with start(**options(server, port)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(KeycloakUser("anna", "keycloak"))
        caller = await caller_of(gateway, tokens)
        assert (caller.subject, caller.groups) == (f"keycloak:{user}", {"builders"})
        assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 200
        server.admin("DELETE", f"/company/users/{user}/groups/{server.group('dev')}")
        refreshed = await client.refresh(tokens["refresh_token"])
        assert refreshed.status_code == 200, refreshed.text
        assert (await caller_of(gateway, refreshed.json())).scopes == {"mcp:list"}
        assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 401


@pytest.mark.parametrize("way", ["disable", "delete"])
async def test_removed_user_is_refused_at_refresh_and_by_the_background_check(
    server: Keycloak, port: int, start: Any, way: str
) -> None:
    user = server.create_user(f"ben-{way}", "dev")
    async with start(**options(server, port, recheck=3.0)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(KeycloakUser(f"ben-{way}", "keycloak"))
        key = gateway.as_(await gateway.new_key("acme", f"keycloak:{user}"))
        assert (await key.post("tools/list")).status_code == 200
        if way == "disable":
            server.admin("PUT", f"/company/users/{user}", {"enabled": False})
        else:
            server.admin("DELETE", f"/company/users/{user}")
        async with asyncio.timeout(6.0):
            while (await key.post("tools/list")).status_code == 200:
                await asyncio.sleep(0.05)
        assert (await client.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
        assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 401


async def test_back_channel_logout_ends_the_tokens_within_five_seconds(server: Keycloak, port: int, start: Any) -> None:
    user = server.create_user("cleo", "dev")
    async with start(**options(server, port)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(KeycloakUser("cleo", "keycloak"))
        bearer = gateway.as_(tokens["access_token"])
        assert (await bearer.post("tools/list")).status_code == 200
        await asyncio.to_thread(server.admin, "POST", f"/company/users/{user}/logout", {})
        async with asyncio.timeout(5.0):
            while (await bearer.post("tools/list")).status_code == 200:
                await asyncio.sleep(0.05)
        assert (await client.refresh(tokens["refresh_token"])).status_code == 400


async def test_administrators_of_the_group_enter_the_console(server: Keycloak, port: int, start: Any) -> None:
    server.create_user("dirk", "chiefs")
    async with start(**options(server, port)) as gateway:
        user = KeycloakUser("dirk", "keycloak", until="/console")
        await user.follow(f"{gateway.base}/console")
        async with httpx.AsyncClient(cookies=user.cookies) as http:
            assert "Overview" in (await http.get(f"{gateway.base}/console")).text
