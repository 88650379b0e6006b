"""Provisioning by SCIM 2.0: conformance, and what a deactivated user loses."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

from tests.flows.test_company_sign_in import caller_of, options
from tests.peers.company import CompanyProvider, CompanyUser, company_provider
from tests.peers.oauth_flow import OAuthTestClient

Json = dict[str, Any]
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


@pytest.fixture(scope="module")
def provider() -> Iterator[CompanyProvider]:
    with company_provider() as running:
        yield running


@pytest.fixture
async def gateway(provider: CompanyProvider, start: Any) -> AsyncIterator[Any]:
    async with start(**options(provider)) as running:
        yield running


async def scim(gateway: Any, tenant: str = "acme", provider: str = "company") -> httpx.AsyncClient:
    token = await gateway.app.identity.providers.scim_tokens.create(tenant, provider)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/scim+json"}
    return httpx.AsyncClient(base_url=f"{gateway.base}/scim/v2", headers=headers, timeout=30)


def user(name: str, **more: Any) -> Json:
    return {"schemas": [USER], "userName": f"{name}@example.com", "externalId": name, "active": True, **more}


def patch(*operations: Json) -> Json:
    return {"schemas": [PATCH], "Operations": list(operations)}


async def test_conformance_checker_finds_no_error(gateway: Any) -> None:
    token = await gateway.app.identity.providers.scim_tokens.create("acme", "company")

    def check() -> list[Any]:
        http = httpx2.Client(
            base_url=f"{gateway.base}/scim/v2", headers={"authorization": f"Bearer {token}"}, timeout=30
        )
        return check_server(SyncSCIMClient(http))

    results = await asyncio.to_thread(check)
    bad = [f"{each.title}: {each.reason}" for each in results if each.status not in (Status.SUCCESS, Status.SKIPPED)]
    assert bad == []
    assert sum(each.status is Status.SUCCESS for each in results) > 50


async def test_request_without_the_token_of_a_tenant_is_rejected(gateway: Any) -> None:
    async with await scim(gateway) as http:
        old = http.headers["authorization"]
        assert (await http.get("/Users")).status_code == 200
        for wrong in ("", "Bearer", f"{old}x", f"Bearer {gateway.key}"):
            answer = await http.get("/Users", headers={"authorization": wrong})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        # A new token replaces the old one, and the database holds only a digest.
        async with await scim(gateway) as renewed:
            assert (await renewed.get("/Users")).status_code == 200
        assert (await http.get("/Users")).status_code == 401
        async with gateway.app.database.reading() as connection:
            rows = (await connection.exec_driver_sql("SELECT * FROM scim_tokens")).all()
        assert len(rows) == 1
        assert renewed.headers["authorization"].removeprefix("Bearer ") not in str(rows)


@pytest.mark.parametrize("way", ["entra", "okta", "put", "delete"])
async def test_deactivated_user_loses_access_at_once(gateway: Any, provider: CompanyProvider, way: str) -> None:
    provider.order(user="ida", groups=["dev"])
    client = await OAuthTestClient.register(gateway.base)
    async with await scim(gateway) as http:
        created = (await http.post("/Users", json=user("ida"))).json()
        tokens = await client.sign_in(CompanyUser("ida"))
        key = await gateway.new_key("acme", "company:ida")
        path = f"/Users/{created['id']}"
        entra = patch({"op": "Replace", "path": "active", "value": "False"})
        answer = await {
            "entra": lambda: http.patch(path, json=entra),
            "okta": lambda: http.patch(path, json=patch({"op": "replace", "value": {"active": False}})),
            "put": lambda: http.put(path, json=user("ida", active=False)),
            "delete": lambda: http.delete(path),
        }[way]()
        assert answer.status_code == (204 if way == "delete" else 200), answer.text
        for credential in (tokens["access_token"], key):
            assert (await gateway.as_(credential).post("tools/list")).status_code == 401
        assert (await client.refresh(tokens["refresh_token"])).status_code == 400
        page = await CompanyUser("ida").follow(client.authorization_url("x" * 43))
        assert (page.status_code, "deactivated" in page.text) == (403, True)
        again = await (http.post("/Users", json=user("ida")) if way == "delete" else http.put(path, json=user("ida")))
        assert again.status_code in (200, 201), again.text
        await client.sign_in(CompanyUser("ida"))


async def test_deactivation_takes_effect_on_every_replica_within_five_seconds(
    provider: CompanyProvider, run: Any, tmp_path: Path, postgres_url: str
) -> None:
    provider.order(user="jane", groups=["dev"])
    settings = options(provider) | {"database": {"url": postgres_url}}
    async with run(tmp_path, **settings) as one:
        elsewhere = {**settings, "server": {"port": 0, "public_url": one.base}}
        async with run(tmp_path, **elsewhere) as two, run(tmp_path, **elsewhere) as three, await scim(one) as http:
            created = (await http.post("/Users", json=user("jane"))).json()
            tokens = await (await OAuthTestClient.register(one.base)).sign_in(CompanyUser("jane"))
            key = await one.new_key("acme", "company:jane")
            used = [replica.as_(each) for replica in (one, two, three) for each in (tokens["access_token"], key)]
            assert [(await each.post("tools/list")).status_code for each in used] == [200] * 6
            patched = await http.patch(
                f"/Users/{created['id']}", json=patch({"op": "replace", "value": {"active": False}})
            )
            assert patched.status_code == 200
            async with asyncio.timeout(5.0):
                while [(await each.post("tools/list")).status_code for each in used] != [401] * 6:
                    await asyncio.sleep(0.05)


async def test_provisioned_group_gives_and_takes_access(gateway: Any, provider: CompanyProvider) -> None:
    provider.order(user="kurt", groups=["staff"])
    client = await OAuthTestClient.register(gateway.base)
    async with await scim(gateway) as http:
        kurt = (await http.post("/Users", json=user("kurt"))).json()
        group = (await http.post("/Groups", json={"schemas": [GROUP], "displayName": "dev"})).json()
        path = f"/Groups/{group['id']}"
        tokens = await client.sign_in(CompanyUser("kurt"))
        assert (await caller_of(gateway, tokens)).scopes == {"mcp:list"}
        added = await http.patch(path, json=patch({"op": "Add", "path": "members", "value": [{"value": kurt["id"]}]}))
        assert added.status_code == 200, added.text
        assert (await http.get(f"/Users/{kurt['id']}")).json()["groups"][0]["display"] == "dev"
        wider = await client.sign_in(CompanyUser("kurt"))
        assert (await caller_of(gateway, wider)).scopes == {"mcp:list", "mcp:call"}
        removed = await http.patch(path, json=patch({"op": "Remove", "path": f'members[value eq "{kurt["id"]}"]'}))
        assert removed.status_code == 200, removed.text
        assert (await gateway.as_(wider["access_token"]).post("tools/list")).status_code == 401
        narrower = (await client.refresh(wider["refresh_token"])).json()
        assert (await caller_of(gateway, narrower)).scopes == {"mcp:list"}


async def test_threat_54_scim_cannot_make_an_administrator(gateway: Any, provider: CompanyProvider) -> None:
    provider.order(user="lars", groups=["dev"])
    async with await scim(gateway) as http:
        lars = (await http.post("/Users", json=user("lars"))).json()
        members = [{"value": lars["id"]}]
        refused = await http.post("/Groups", json={"schemas": [GROUP], "displayName": "chiefs", "members": members})
        assert refused.status_code == 403
        other = (await http.post("/Groups", json={"schemas": [GROUP], "displayName": "x", "members": members})).json()
        renamed = await http.put(
            f"/Groups/{other['id']}", json={"schemas": [GROUP], "displayName": "chiefs", "members": members}
        )
        assert renamed.status_code == 403
    tokens = await (await OAuthTestClient.register(gateway.base)).sign_in(
        CompanyUser("lars"), scope="mcp:list mcp:call mcp:admin"
    )
    assert "mcp:admin" not in (await caller_of(gateway, tokens)).scopes


async def test_threat_54_scim_reaches_only_users_of_its_own_tenant_and_provider(
    gateway: Any, provider: CompanyProvider
) -> None:
    await gateway.app.identity.users.put("acme", "mona", "correct horse battery", {"mcp:list"})
    provider.order(user="mona", groups=["dev"])
    client = await OAuthTestClient.register(gateway.base)
    tokens = await client.sign_in(CompanyUser("mona"))
    local = await gateway.new_key("acme", "mona")
    for tenant, name, external in (("default", "company", "mona"), ("acme", "other", "mona"), ("acme", "company", "x")):
        async with await scim(gateway, tenant, name) as http:
            created = await http.post("/Users", json={**user("mona", active=False), "externalId": external})
            assert created.status_code == 201, created.text
            await http.delete(f"/Users/{created.json()['id']}")
    for credential in (tokens["access_token"], local):
        assert (await gateway.as_(credential).post("tools/list")).status_code == 200
    async with await scim(gateway) as http:
        await http.post("/Users", json=user("mona", active=False))
    assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 401
    assert (await gateway.as_(local).post("tools/list")).status_code == 200


async def test_lookup_by_name_and_pages_of_users(gateway: Any) -> None:
    async with await scim(gateway) as http:
        for number in range(5):
            await http.post("/Users", json=user(f"u{number}"))
        assert (await http.post("/Users", json=user("u1"))).status_code == 409
        found = (await http.get("/Users", params={"filter": 'userName eq "U3@example.com"'})).json()
        assert [each["externalId"] for each in found["Resources"]] == ["u3"]
        page = (await http.get("/Users", params={"startIndex": 3, "count": 2})).json()
        assert (page["totalResults"], [each["externalId"] for each in page["Resources"]]) == (5, ["u2", "u3"])
        wrong = await http.get("/Users", params={"filter": "userName eq"})
        assert (wrong.status_code, wrong.json()["scimType"]) == (400, "invalidFilter")
