"""Why, with policy ids, for each way that a call can go."""

from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller
from gateway.policy.explain import Explanation, PolicyExplainer
from gateway.state.tenants import Tenant
from tests.gateway.fakes import POLICIES, SCOPES, FakeBackend, a_route
from tests.gateway.policy.folders import a_folder, policies

TENANTS = {
    "acme": Tenant("acme"),
    "guests": Tenant("guests", backends=("core",)),
    "library": Tenant("library", read_only=True),
    "closed": Tenant("closed", suspended=True),
}
ROUTES = {name: a_route(FakeBackend(), {"name": name, "inputSchema": {}}, effect=effect) for name, effect in (
    ("look", 0), ("make", 2), ("drop", 3))}  # fmt: skip


def why(tenant: str, tool: str, scopes: frozenset[str] = SCOPES, kept: Any = POLICIES, **more: Any) -> Explanation:
    caller = Caller(tenant, "alice", scopes=scopes)
    return PolicyExplainer(TENANTS.get, kept, ROUTES.get).why(caller, tool, more.pop("arguments", {}), **more)


@pytest.mark.parametrize(
    ("tenant", "tool", "scopes", "outcome", "ids", "said"),
    [
        ("acme", "make", SCOPES, "allow", ["grant.call"], "Allowed by grant.call."),
        ("guests", "look", SCOPES, "hidden", ["guard.tenant"], "does not have that backend. (guard.tenant)"),
        ("acme", "make", frozenset({"mcp:call"}), "scope", ["guard.scope_write"], "lacks the scope mcp:call:write"),
        ("library", "make", SCOPES, "deny", ["guard.readonly"], "This tenant is read-only. (guard.readonly)"),
        ("acme", "drop", SCOPES, "approval", ["approval.destructive"], "Needs the caller's own approval"),
        ("closed", "look", SCOPES, "hidden", ["guard.suspended"], "This tenant is suspended."),
        ("acme", "nothing", SCOPES, "unknown tool", [], "No backend has a tool nothing."),
        ("nowhere", "look", SCOPES, "unknown tenant", [], "There is no tenant nowhere."),
    ],
)
def test_every_answer_names_the_policies_that_gave_it(
    tenant: str, tool: str, scopes: frozenset[str], outcome: str, ids: list[str], said: str
) -> None:
    found = why(tenant, tool, scopes)
    assert (found.outcome, [note.id for note in found.policies]) == (outcome, ids)
    assert said in found.sentence
    assert found.version == POLICIES.now.version
    assert found.as_json()["outcome"] == outcome


def test_with_an_approval_it_would_be_allowed() -> None:
    assert why("acme", "drop", approved=True).outcome == "allow"


def test_arguments_are_shown_as_policy_sees_them(tmp_path: Path) -> None:
    grants = '@id("all") permit (principal, action, resource);'
    kept = policies(a_folder(tmp_path, grants, "lab.look: {path: Path}"))
    found = why("acme", "look", kept=kept, arguments={"path": "/srv/%2e%2e/etc", "secret": "x"})
    assert found.context is not None
    assert found.context["args"] == {"path": "/etc"}
    refused = why("acme", "look", kept=kept, arguments={"path": 5})
    assert (refused.outcome, [note.id for note in refused.policies]) == ("deny", ["policy.arguments"])


def test_what_nothing_permits_says_so(tmp_path: Path) -> None:
    kept = policies(a_folder(tmp_path, '@id("l") permit (principal, action == Gw::Action::"list", resource);'))
    assert "no policy permits it" in why("acme", "look", kept=kept).sentence
