"""Rules that turn groups of a provider into access."""

from dataclasses import replace

import pytest

from gateway.auth.providers.identity import AccessRule, ProviderConfig, find_access
from gateway.contract.caller import SCOPES

READ = frozenset({"mcp:list"})
ADMIN = frozenset({"mcp:list", "mcp:admin"})
CONFIG = ProviderConfig(
    name="p", label="P", preset="oidc", issuer="https://idp.example", client_id="c", client_secret="", client_key=None,
    scopes=("openid",), groups_claim="groups", scim_id="sub", allowed_domains=frozenset(), allowed_tenants=frozenset(),
    rules=[
        AccessRule("ops", "acme", frozenset({"operators"}), ADMIN),
        AccessRule("dev", "acme", frozenset({"builders"}), READ),
        AccessRule("dev", "other", frozenset(), READ),
    ],
    admin_group="chiefs", contact="", graph_url="",
)  # fmt: skip


def test_first_rule_that_matches_applies() -> None:
    found = find_access(CONFIG, frozenset({"dev", "ops"}))
    assert found is not None
    assert (found.tenant, found.groups, found.scopes) == ("acme", {"operators"}, ADMIN)
    assert find_access(CONFIG, frozenset({"Dev", "*", ""})) is None


def test_star_matches_every_user() -> None:
    config = replace(CONFIG, rules=[AccessRule("*", "acme", frozenset(), READ)])
    assert find_access(config, frozenset()) is not None


def test_group_of_administrators_adds_the_admin_scope() -> None:
    found = find_access(CONFIG, frozenset({"dev", "chiefs"}))
    assert found is not None
    assert found.scopes == READ | {"mcp:admin"}
    alone = find_access(CONFIG, frozenset({"chiefs"}))
    assert alone is not None
    assert (alone.tenant, alone.scopes) == ("default", SCOPES)
    assert find_access(replace(CONFIG, admin_group=""), frozenset({""})) is None


@pytest.mark.parametrize(("group", "tenant", "expected"), [("ops", "acme", None), ("chiefs", "acme", None)])
def test_threat_54_provisioned_group_never_grants_administration(group: str, tenant: str, expected: object) -> None:
    assert find_access(CONFIG, frozenset(), {tenant: frozenset({group})}) is expected


def test_provisioned_group_counts_only_in_its_own_tenant() -> None:
    found = find_access(CONFIG, frozenset(), {"other": frozenset({"dev"})})
    assert found is not None
    assert found.tenant == "other"
    assert find_access(CONFIG, frozenset(), {"third": frozenset({"dev"})}) is None
