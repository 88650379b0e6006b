"""Explanations of policy decisions, one for each outcome."""

from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller
from gateway.policy.explain import Explanation, PolicyExplainer
from gateway.state.tenants import Tenant
from tests.gateway.fakes import POLICIES, SCOPES, FakeBackend, a_route
from tests.gateway.policy.folders import load_policies, policy_folder

TENANTS = {
    "acme": Tenant("acme"),
    "guests": Tenant("guests", backends=("core",)),
    "library": Tenant("library", read_only=True),
    "closed": Tenant("closed", suspended=True),
}
ROUTES = {name: a_route(FakeBackend(), {"name": name, "inputSchema": {}}, effect=effect) for name, effect in (
    ("look", 0), ("make", 2), ("drop", 3))}  # fmt: skip


def explain(
    tenant: str, tool: str, scopes: frozenset[str] = SCOPES, active: Any = POLICIES, **more: Any
) -> Explanation:
    caller = Caller(tenant, "alice", scopes=scopes)
    return PolicyExplainer(TENANTS.get, active, ROUTES.get).explain(caller, tool, more.pop("arguments", {}), **more)


@pytest.mark.parametrize(
    ("tenant", "tool", "scopes", "outcome", "ids", "sentence"),
    [
        ("acme", "make", SCOPES, "allow", ["grant.call"], "Allowed by grant.call."),
        ("guests", "look", SCOPES, "hidden", ["guard.tenant"], "does not have that backend. (guard.tenant)"),
        ("acme", "make", frozenset({"mcp:call"}), "scope", ["guard.scope_write"], "lacks the scope mcp:call:write"),
        ("library", "make", SCOPES, "deny", ["guard.readonly"], "This tenant is read-only. (guard.readonly)"),
        ("acme", "drop", SCOPES, "approval", ["approval.destructive"], "Requires the caller's own approval"),
        ("closed", "look", SCOPES, "hidden", ["guard.suspended"], "This tenant is suspended."),
        ("acme", "nothing", SCOPES, "unknown tool", [], "Unknown tool: nothing."),
        ("nowhere", "look", SCOPES, "unknown tenant", [], "Unknown tenant: nowhere."),
    ],
)
def test_explanation_names_the_deciding_policies(
    tenant: str, tool: str, scopes: frozenset[str], outcome: str, ids: list[str], sentence: str
) -> None:
    found = explain(tenant, tool, scopes)
    assert (found.outcome, [note.id for note in found.policies]) == (outcome, ids)
    assert sentence in found.sentence
    assert found.version == POLICIES.current.version
    assert found.as_json()["outcome"] == outcome


def test_approved_destructive_call_is_allowed() -> None:
    assert explain("acme", "drop", approved=True).outcome == "allow"


def test_explanation_shows_the_projected_arguments(tmp_path: Path) -> None:
    grants = '@id("all") permit (principal, action, resource);'
    active = load_policies(policy_folder(tmp_path, grants, "lab.look: {path: Path}"))
    found = explain("acme", "look", active=active, arguments={"path": "/srv/%2e%2e/etc", "secret": "x"})
    assert found.context is not None
    assert found.context["args"] == {"path": "/etc"}
    refused = explain("acme", "look", active=active, arguments={"path": 5})
    assert (refused.outcome, [note.id for note in refused.policies]) == ("deny", ["policy.arguments"])


def test_explanation_says_that_no_policy_permits_the_call(tmp_path: Path) -> None:
    active = load_policies(
        policy_folder(tmp_path, '@id("l") permit (principal, action == Gw::Action::"list", resource);')
    )
    assert "no policy permits it" in explain("acme", "look", active=active).sentence
