"""Policy decisions on calls, lists and visibility, and their caches."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind, UnknownName
from gateway.policy.active_policies import ActivePolicies
from gateway.policy.decisions import INVALID_ARGUMENTS, Authorizer, Decision
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, BOB, POLICIES, FakeBackend, a_call, a_route
from tests.gateway.policy.folders import load_policies, policy_folder

NO_SCOPES = frozenset[str]()
ALL = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})
PERMIT = '@id("grant.all") permit (principal, action, resource);\n'


def authorizer(tenant: Tenant | None = Tenant("acme"), active: ActivePolicies = POLICIES) -> Authorizer:
    return Authorizer({"acme": tenant}.get, active)


def decide(effect: int, scopes: frozenset[str] = ALL, tenant: Tenant | None = Tenant("acme")) -> Decision:
    caller = Caller("acme", "alice", scopes=scopes)
    return authorizer(tenant).decide(a_call(caller=caller, route=a_route(effect=effect)))


def fault(decision: Decision) -> Fault:
    assert decision.denied
    return decision.fault("lab_echo")


@pytest.mark.parametrize("effect", [0, 1, 2])
def test_default_scopes_permit_reads_and_writes(effect: int) -> None:
    decision = decide(effect)
    assert (decision.policies, decision.denied, decision.approval) == (("grant.call",), "", "")


def test_destructive_call_requires_approval() -> None:
    decision = decide(3)
    assert (decision.denied, decision.approval, decision.policies) == ("", "self", ("approval.destructive",))


@pytest.mark.parametrize(
    ("effect", "scopes", "missing"),
    [
        (0, NO_SCOPES, ["mcp:call"]),
        (1, frozenset({"mcp:list"}), ["mcp:call"]),
        (2, frozenset({"mcp:call"}), ["mcp:call:write"]),
        (3, NO_SCOPES, ["mcp:call", "mcp:call:write"]),
        (2, frozenset({"mcp:call:write"}), ["mcp:call"]),
        (0, frozenset({"MCP:CALL", "mcp:call ", "mcp:*"}), ["mcp:call"]),
    ],
)
def test_missing_scope_is_reported(effect: int, scopes: frozenset[str], missing: list[str]) -> None:
    refused = fault(decide(effect, scopes))
    assert (refused.kind, refused.details["missing_scopes"]) == (Kind.DENIED, missing)
    assert refused.suggested_fix


@pytest.mark.parametrize(("effect", "allowed"), [(0, True), (1, False), (2, False), (3, False)])
def test_read_only_tenant_can_only_read(effect: int, allowed: bool) -> None:
    tenant = Tenant("acme", read_only=True)
    decision = decide(effect, tenant=tenant)
    assert (not decision.denied) is allowed
    if not allowed:
        assert (fault(decision).kind, fault(decision).message) == (Kind.DENIED, "This tenant is read-only.")
    assert authorizer(tenant).can_list(ALICE, a_route(effect=effect)) is allowed
    assert authorizer(tenant).can_see(ALICE, a_route(effect=effect))


def test_cached_decision_equals_an_uncached_one() -> None:
    """For any difference in caller or route, the decision equals that of an empty cache."""
    callers = [Caller("acme", "alice", scopes=scopes) for scopes in (ALL, ALL - {"mcp:call:write"}, NO_SCOPES)]
    services = [Caller("acme", "alice", "service", scopes=ALL)]
    routes = [a_route(effect=effect, pinned=pinned) for effect in range(4) for pinned in (True, False)]
    cached = authorizer()
    for _ in range(2):
        for caller in (*callers, *services):
            for route in routes:
                fresh = authorizer().decide(a_call(caller=caller, route=route))
                assert cached.decide(a_call(caller=caller, route=route)) == fresh
                assert cached.can_see(caller, route) is authorizer().can_see(caller, route)


def test_tool_with_a_changed_definition_is_hidden_and_unknown() -> None:
    active = authorizer()
    assert not active.decide(a_call(route=a_route(effect=0))).denied
    decision = active.decide(a_call(route=a_route(effect=0, pinned=False)))
    assert (decision.denied, decision.policies) == ("unknown", ("guard.pinned",))
    assert not active.can_see(ALICE, a_route(effect=0, pinned=False))


@pytest.mark.parametrize("tenant", [None, Tenant("acme", suspended=True)])
def test_unknown_or_suspended_tenant_is_denied_everything(tenant: Tenant | None) -> None:
    assert isinstance(fault(decide(0, tenant=tenant)), UnknownName)
    assert not authorizer(tenant).can_see(ALICE, a_route())
    assert not authorizer(tenant).has_backend(ALICE, "lab")
    assert fault(authorizer(tenant).decide_list(a_call("tools/list", {}))).kind is Kind.DENIED


@pytest.mark.parametrize(
    ("patterns", "seen"), [(("*",), True), ((), False), (("lab",), True), (("l*", "x"), True), (("LAB",), False)]
)
def test_tenant_sees_the_backends_that_match_its_patterns(patterns: tuple[str, ...], seen: bool) -> None:
    route = a_route(FakeBackend("lab"))
    rules = authorizer(Tenant("acme", backends=patterns))
    assert rules.can_see(ALICE, route) is seen
    assert rules.has_backend(ALICE, "lab") is seen
    assert rules.decide(a_call(route=route)).denied == ("" if seen else "unknown")


def test_tenant_can_use_the_virtual_servers_that_match_its_patterns() -> None:
    rules = authorizer(Tenant("acme", servers=("office",)))
    assert rules.can_enter(ALICE, "office")
    assert not rules.can_enter(ALICE, "lab")
    assert not rules.can_enter(Caller("other", "alice"), "office")


def test_lists_require_the_list_scope() -> None:
    decide = authorizer().decide_list
    assert not decide(a_call("tools/list", {})).denied
    refused = fault(decide(a_call("tools/list", {}, caller=Caller("acme", "a", scopes=frozenset({"mcp:call"})))))
    assert refused.details["missing_scopes"] == ["mcp:list"]


def test_view_key_depends_on_tenant_groups_and_kind_but_not_on_subject_or_scopes() -> None:
    tenants = {"acme": Tenant("acme"), "b": Tenant("b")}
    rules = Authorizer(tenants.get, POLICIES)
    before = rules.view_key(ALICE)
    assert rules.view_key(Caller("acme", "bob", scopes=NO_SCOPES)) is before
    assert rules.view_key(Caller("b", "alice")) is not before
    assert rules.view_key(Caller("acme", "alice", groups=frozenset({"g"}))) is not before
    assert rules.view_key(Caller("acme", "alice", kind="service")) is not before
    for changed in (Tenant("acme", read_only=True), Tenant("acme", suspended=True), Tenant("acme", backends=("x",))):
        tenants["acme"] = changed
        assert rules.view_key(ALICE) is not before


def test_policy_that_names_a_subject_distinguishes_subjects(tmp_path: Path) -> None:
    active = load_policies(
        policy_folder(tmp_path, PERMIT + '@id("no.bob") forbid (principal == Gw::User::"bob", action, resource);')
    )
    rules = authorizer(active=active)
    assert rules.view_key(ALICE) is not rules.view_key(BOB)
    assert not rules.decide(a_call(caller=ALICE)).denied
    hidden = rules.decide(a_call(caller=BOB))
    assert (hidden.policies, hidden.denied) == (("no.bob",), "unknown")
    assert rules.can_see(ALICE, a_route())
    assert not rules.can_see(BOB, a_route())
    # A service account with the same name is another principal.
    assert rules.can_see(Caller("acme", "bob", kind="service", scopes=ALL), a_route())


def test_policy_that_names_a_tool_hides_only_that_tool(tmp_path: Path) -> None:
    forbid = '@id("no.drop") forbid (principal, action, resource == Gw::Tool::"lab.drop");'
    rules = authorizer(active=load_policies(policy_folder(tmp_path, PERMIT + forbid)))
    drop = a_route(definition={"name": "drop", "inputSchema": {"type": "object"}})
    assert rules.can_see(ALICE, a_route())
    assert not rules.can_see(ALICE, drop)
    assert isinstance(rules.decide(a_call(route=drop)).fault("lab_drop"), UnknownName)


def test_policy_on_a_group_applies_to_its_members(tmp_path: Path) -> None:
    permit = '@id("grant.ops") permit (principal in Gw::Group::"ops", action, resource);'
    rules = authorizer(active=load_policies(policy_folder(tmp_path, permit)))
    ops = Caller("acme", "alice", groups=frozenset({"ops"}), scopes=ALL)
    assert rules.decide(a_call(caller=ops)).policies == ("grant.ops",)
    assert rules.decide(a_call(caller=ALICE)).denied == "unknown"


ARGS = "lab.echo: {path: Path, amount: Long}"
BY_ARGUMENTS = (
    PERMIT
    + '@id("only.srv") @reason("Only below /srv.") forbid (principal, action == Gw::Action::"tools/call", resource)'
    + ' when { context.args has path && !(context.args.path like "/srv/*") };\n'
    + '@id("small") forbid (principal, action == Gw::Action::"tools/call", resource)'
    + " when { context.args has amount && context.args.amount > 1000 };"
)


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ({"path": "/srv/a"}, ("grant.all",)),
        ({"path": "/srv/../etc/passwd"}, ("only.srv",)),
        ({"path": "/srv/%2e%2e/etc/passwd"}, ("only.srv",)),
        ({"path": "/srv/%252e%252e/etc"}, ("only.srv",)),
        ({"path": "/srv/．．/etc"}, ("only.srv",)),
        ({"path": "/srv\\..\\etc"}, ("only.srv",)),
        ({"path": ["/srv/a"]}, (INVALID_ARGUMENTS,)),
        ({"amount": 1000}, ("grant.all",)),
        ({"amount": 1001}, ("small",)),
        ({"amount": "5000"}, (INVALID_ARGUMENTS,)),
        ({"amount": 2**63}, (INVALID_ARGUMENTS,)),
        ({"amount": 1.5}, (INVALID_ARGUMENTS,)),
        ({"amount": True}, (INVALID_ARGUMENTS,)),
        ({}, ("grant.all",)),
        ({"else": {"amount": 5000}}, ("grant.all",)),
    ],
)
def test_policy_sees_only_typed_canonical_arguments(tmp_path: Path, arguments: Json, ids: tuple[str, ...]) -> None:
    rules = authorizer(active=load_policies(policy_folder(tmp_path, BY_ARGUMENTS, ARGS)))
    for _ in range(2):  # uncached, then cached
        decision = rules.decide(a_call(params={"name": "lab_echo", "arguments": arguments}))
        assert decision.policies == ids
        assert bool(decision.denied) is (ids != ("grant.all",))
    assert rules.can_see(ALICE, a_route())
    if ids == ("only.srv",):
        assert fault(decision).message == "Only below /srv."


def test_tool_that_depends_on_arguments_stays_visible(tmp_path: Path) -> None:
    permit = (
        '@id("grant.small") permit (principal, action == Gw::Action::"tools/call", resource)'
        " when { context.args has amount && context.args.amount < 5 };"
    )
    rules = authorizer(active=load_policies(policy_folder(tmp_path, permit, ARGS)))
    assert rules.can_see(ALICE, a_route())
    assert rules.can_list(ALICE, a_route())
    allowed = rules.decide(a_call(params={"name": "lab_echo", "arguments": {"amount": 3}}))
    refused = rules.decide(a_call(params={"name": "lab_echo", "arguments": {"amount": 7}}))
    assert (allowed.denied, refused.denied) == ("", "denied")


def test_approval_by_another_role_is_reported(tmp_path: Path) -> None:
    owner = PERMIT + (
        '@id("approval.owner") @advice("approval:owner")'
        ' forbid (principal, action == Gw::Action::"tools/call", resource) unless { context.approved };'
    )
    rules = authorizer(active=load_policies(policy_folder(tmp_path, owner)))
    assert rules.decide(a_call()).approval == "owner"


def test_decision_contains_the_policy_context() -> None:
    caller = Caller("acme", "alice", groups=frozenset({"ops", "dev"}), scopes=ALL)
    context = authorizer(Tenant("acme", read_only=True)).decide(a_call(caller=caller)).context
    assert '"groups":["dev","ops"]' in context
    assert '"readonly":true' in context
    assert f'"policies":"{POLICIES.current.version}"' in context


def test_edit_changes_decisions_and_views_at_once(tmp_path: Path) -> None:
    active = load_policies(folder := policy_folder(tmp_path))
    rules = authorizer(active=active)
    before = rules.view_key(ALICE)
    assert not rules.decide(a_call()).denied
    policy_folder(tmp_path, '@id("grant.list") permit (principal, action == Gw::Action::"list", resource);')
    active.current = load_policies(folder).current
    assert rules.decide(a_call()).denied == "unknown"
    assert rules.view_key(ALICE) is not before
    assert not rules.can_see(ALICE, a_route())


@pytest.mark.parametrize("kind", ["resource", "prompt"])
def test_resources_and_prompts_are_not_covered_by_tool_grants(kind: str, tmp_path: Path) -> None:
    tools_only = '@id("grant.tools") permit (principal, action == Gw::Action::"tools/call", resource);'
    rules = authorizer(active=load_policies(policy_folder(tmp_path, tools_only)))
    definition: Json = {"name": "x", "uri": "x://y"} if kind == "resource" else {"name": "x"}
    method = "resources/read" if kind == "resource" else "prompts/get"
    params: Any = {"uri": "x://y"} if kind == "resource" else {"name": "lab_x"}
    route = a_route(definition=definition, effect=0)
    assert not rules.can_see(ALICE, route)
    refused = rules.decide(a_call(method, params, route=route)).fault("x://y")
    assert refused.message.startswith(f"Unknown {kind}")


@pytest.mark.parametrize("names", [False, True], ids=["by kind", "by name"])
def test_long_uris_are_not_cached(tmp_path: Path, names: bool) -> None:
    by_name = (
        '@id("no") forbid (principal, action == Gw::Action::"resources/read", resource)'
        ' when { resource.uri like "*secret*" };'
    )
    rules = authorizer(active=load_policies(policy_folder(tmp_path, PERMIT + (by_name if names else ""))))
    route = a_route(definition={"name": "x", "uri": "x"}, effect=0)
    tracemalloc.start()
    try:
        for number in range(100):
            uri = f"x://{number}" + "y" * 8000
            unlisted = replace(route, name=uri, canonical=f"lab:{uri}")
            assert not rules.decide(a_call("resources/read", {"uri": uri}, route=unlisted)).denied
            assert rules.can_see(ALICE, unlisted)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000  # their total size is 800,000
    secret = replace(route, name="x://secret", canonical="lab:x://secret")
    for _ in range(2):
        assert bool(rules.decide(a_call("resources/read", {"uri": "x://secret"}, route=secret)).denied) is names


def test_long_arguments_are_not_cached(tmp_path: Path) -> None:
    rules = authorizer(active=load_policies(policy_folder(tmp_path, BY_ARGUMENTS, ARGS)))
    tracemalloc.start()
    try:
        for number in range(100):
            arguments = {"path": f"/srv/{number}" + "y" * 8000}
            assert not rules.decide(a_call(params={"name": "lab_echo", "arguments": arguments})).denied
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000
