"""Presets of identity providers: GitHub without OpenID Connect, and groups of Entra; and client authentication."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc.jwk import ECKey

from tests.flows.test_company_sign_in import FREE, TENANTS, caller_of
from tests.peers.company import CompanyUser, company_provider
from tests.peers.github_api import GithubApi, github_api
from tests.peers.oauth_flow import OAuthTestClient

Json = dict[str, Any]


@pytest.fixture
def github() -> Iterator[GithubApi]:
    with github_api() as api:
        yield api


def github_settings(api: GithubApi, **more: Any) -> Json:
    entry: Json = {
        "preset": "github", "issuer": api.issuer, "allow_private": True, "client_id": "Iv1.gatehouse",
        "client_secret": "github-secret",
        "rules": [{"group": "acme/developers", "tenant": "acme"}, {"group": "org-119", "scopes": ["mcp:list"]}], **more,
    }  # fmt: skip
    return {"auth": {**FREE, "providers": {"github": entry}}, "tenants": TENANTS}


async def test_github_user_signs_in_with_organisations_and_teams_as_groups(github: GithubApi, start: Any) -> None:
    async with start(**github_settings(github, allowed_domains=["example.com"])) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        user = CompanyUser(provider="github")
        tokens = await client.sign_in(user)
        assert "sign in with GitHub" in user.pages[0].text
        assert (await caller_of(gateway, tokens)).principal == "acme/user:github:583231"
        # Another login name is the same account; another team gives other access.
        github.user["login"] = "octocat-renamed"
        assert (await client.refresh(tokens["refresh_token"])).status_code == 200
        github.teams.clear()
        moved = await client.sign_in(CompanyUser(provider="github"))
        caller = await caller_of(gateway, moved)
        assert (caller.principal, caller.scopes) == ("default/user:github:583231", {"mcp:list"})
        assert (await gateway.as_(tokens["access_token"]).post("tools/list")).status_code == 401


async def test_github_user_who_withdrew_the_authorization_is_refused_at_the_next_refresh(
    github: GithubApi, start: Any
) -> None:
    async with start(**github_settings(github)) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        tokens = await client.sign_in(CompanyUser(provider="github"))
        github.tokens.clear()
        answer = await client.refresh(tokens["refresh_token"])
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


async def test_github_error_with_status_200_and_unverified_address_are_refused(github: GithubApi, start: Any) -> None:
    async with start(**github_settings(github, allowed_domains=["example.com"])) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        github.emails[0]["verified"] = False
        page = await CompanyUser(provider="github").follow(client.authorization_url("x" * 43))
        assert (page.status_code, "allowed domain" in page.text) == (403, True)
    async with start(**github_settings(github, client_secret="wrong")) as gateway:
        client = await OAuthTestClient.register(gateway.base)
        page = await CompanyUser(provider="github").follow(client.authorization_url("x" * 43))
        assert (page.status_code, "incorrect_client_credentials" in page.text) == (403, True)


@pytest.mark.parametrize("overage", ["readable", "forbidden"])
async def test_entra_groups_that_do_not_fit_into_the_token_come_from_graph_or_are_refused(
    start: Any, overage: str
) -> None:
    with company_provider(overage=overage) as provider:
        entry = provider.settings(
            preset="entra", graph_url=provider.issuer, scopes=["openid", "profile"], allowed_tenants=["directory-1"]
        )
        given: Json = {
            "auth": {**FREE, "providers": {"company": entry}}, "tenants": TENANTS, "server": {"port": provider.port},
        }  # fmt: skip
        async with start(**given) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            if overage == "readable":
                caller = await caller_of(gateway, await client.sign_in(CompanyUser()))
                assert caller.groups == {"builders"}
            else:
                page = await CompanyUser().follow(client.authorization_url("x" * 43))
                assert (page.status_code, "too many groups" in page.text) == (403, True)
            assert "POST /v1.0/me/getMemberObjects" in provider.order()


async def test_user_of_another_entra_directory_is_refused(start: Any) -> None:
    with company_provider() as provider:
        entry = provider.settings(preset="entra", scopes=["openid"], allowed_tenants=["directory-2"])
        given: Json = {
            "auth": {**FREE, "providers": {"company": entry}}, "tenants": TENANTS, "server": {"port": provider.port},
        }  # fmt: skip
        async with start(**given) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            page = await CompanyUser().follow(client.authorization_url("x" * 43))
            assert (page.status_code, "directory" in page.text) == (403, True)


async def test_gateway_authenticates_with_private_key_jwt(start: Any) -> None:
    key = ECKey.generate_key("P-256", {"kid": "k1", "use": "sig", "alg": "ES256"})
    with company_provider(key=key.as_dict(private=False)) as provider:
        private = json.dumps(key.as_dict(private=True))
        entry = {**provider.settings(), "client_key": private}
        del entry["client_secret"]
        given: Json = {
            "auth": {**FREE, "providers": {"company": entry}}, "tenants": TENANTS, "server": {"port": provider.port},
        }  # fmt: skip
        async with start(**given) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            tokens = await client.sign_in(CompanyUser())
            assert (await client.refresh(tokens["refresh_token"])).status_code == 200


async def test_groups_that_only_the_user_info_endpoint_names_are_used(start: Any) -> None:
    with company_provider(thin=True) as provider:
        provider.order(user="alice", groups=["dev"])
        given: Json = {
            "auth": {**FREE, "providers": {"company": provider.settings()}},
            "tenants": TENANTS, "server": {"port": provider.port},
        }  # fmt: skip
        async with start(**given) as gateway:
            client = await OAuthTestClient.register(gateway.base)
            assert (await caller_of(gateway, await client.sign_in(CompanyUser()))).groups == {"builders"}
