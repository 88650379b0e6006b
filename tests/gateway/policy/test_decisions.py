"""Who sees what, and who may do what."""

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind, UnknownName
from gateway.policy.active_policies import ActivePolicies
from gateway.policy.decisions import ARGUMENTS, Authorizer, Decision
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, BOB, POLICIES, FakeBackend, a_call, a_route
from tests.gateway.policy.folders import a_folder, policies

NOBODY = frozenset[str]()
ALL = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})
PERMIT = '@id("grant.all") permit (principal, action, resource);\n'


def policy(tenant: Tenant | None = Tenant("acme"), kept: ActivePolicies = POLICIES) -> Authorizer:
    return Authorizer({"acme": tenant}.get, kept)


def decided(effect: int, scopes: frozenset[str] = ALL, tenant: Tenant | None = Tenant("acme")) -> Decision:
    caller = Caller("acme", "alice", scopes=scopes)
    return policy(tenant).decide(a_call(caller=caller, route=a_route(effect=effect)))


def fault(decision: Decision) -> Fault:
    assert decision.refused
    return decision.fault("lab_echo")


@pytest.mark.parametrize("effect", [0, 1, 2])
def test_the_default_scopes_permit_reading_and_writing(effect: int) -> None:
    decision = decided(effect)
    assert (decision.policies, decision.refused, decision.approval) == (("grant.call",), "", "")


def test_what_destroys_needs_approval() -> None:
    decision = decided(3)
    assert (decision.refused, decision.approval, decision.policies) == ("", "self", ("approval.destructive",))


@pytest.mark.parametrize(
    ("effect", "scopes", "missing"),
    [
        (0, NOBODY, ["mcp:call"]),
        (1, frozenset({"mcp:list"}), ["mcp:call"]),
        (2, frozenset({"mcp:call"}), ["mcp:call:write"]),
        (3, NOBODY, ["mcp:call", "mcp:call:write"]),
        (2, frozenset({"mcp:call:write"}), ["mcp:call"]),
        (0, frozenset({"MCP:CALL", "mcp:call ", "mcp:*"}), ["mcp:call"]),
    ],
)
def test_a_missing_scope_is_named(effect: int, scopes: frozenset[str], missing: list[str]) -> None:
    refused = fault(decided(effect, scopes))
    assert (refused.kind, refused.details["missing_scopes"]) == (Kind.DENIED, missing)
    assert refused.suggested_fix


@pytest.mark.parametrize(("effect", "allowed"), [(0, True), (1, False), (2, False), (3, False)])
def test_a_read_only_tenant_only_reads(effect: int, allowed: bool) -> None:
    tenant = Tenant("acme", read_only=True)
    decision = decided(effect, tenant=tenant)
    assert (not decision.refused) is allowed
    if not allowed:
        assert (fault(decision).kind, fault(decision).message) == (Kind.DENIED, "This tenant is read-only.")
    assert policy(tenant).lists(ALICE, a_route(effect=effect)) is allowed
    assert policy(tenant).sees(ALICE, a_route(effect=effect))


def test_a_remembered_decision_is_never_that_of_another_request() -> None:
    """Whatever one thing differs, the answer is the one that a policy without any memory gives."""
    callers = [Caller("acme", "alice", scopes=scopes) for scopes in (ALL, ALL - {"mcp:call:write"}, NOBODY)]
    services = [Caller("acme", "alice", "service", scopes=ALL)]
    routes = [a_route(effect=effect, pinned=pinned) for effect in range(4) for pinned in (True, False)]
    remembering = policy()
    for _ in range(2):
        for caller in (*callers, *services):
            for route in routes:
                fresh = policy().decide(a_call(caller=caller, route=route))
                assert remembering.decide(a_call(caller=caller, route=route)) == fresh
                assert remembering.sees(caller, route) is policy().sees(caller, route)


def test_a_tool_whose_definition_changed_is_hidden_and_its_call_as_unknown() -> None:
    kept = policy()
    assert not kept.decide(a_call(route=a_route(effect=0))).refused
    decision = kept.decide(a_call(route=a_route(effect=0, pinned=False)))
    assert (decision.refused, decision.policies) == ("unknown", ("guard.pinned",))
    assert not kept.sees(ALICE, a_route(effect=0, pinned=False))


@pytest.mark.parametrize("tenant", [None, Tenant("acme", suspended=True)])
def test_an_unknown_or_suspended_tenant_may_do_nothing(tenant: Tenant | None) -> None:
    assert isinstance(fault(decided(0, tenant=tenant)), UnknownName)
    assert not policy(tenant).sees(ALICE, a_route())
    assert not policy(tenant).has(ALICE, "lab")
    assert fault(policy(tenant).decide_list(a_call("tools/list", {}))).kind is Kind.DENIED


@pytest.mark.parametrize(
    ("patterns", "seen"), [(("*",), True), ((), False), (("lab",), True), (("l*", "x"), True), (("LAB",), False)]
)
def test_a_tenant_sees_the_backends_its_patterns_name(patterns: tuple[str, ...], seen: bool) -> None:
    route = a_route(FakeBackend("lab"))
    mine = policy(Tenant("acme", backends=patterns))
    assert mine.sees(ALICE, route) is seen
    assert mine.has(ALICE, "lab") is seen
    assert mine.decide(a_call(route=route)).refused == ("" if seen else "unknown")


def test_a_tenant_enters_the_virtual_servers_its_patterns_name() -> None:
    mine = policy(Tenant("acme", servers=("desk",)))
    assert mine.enters(ALICE, "desk")
    assert not mine.enters(ALICE, "lab")
    assert not mine.enters(Caller("other", "alice"), "desk")


def test_lists_need_their_own_scope() -> None:
    decide = policy().decide_list
    assert not decide(a_call("tools/list", {})).refused
    refused = fault(decide(a_call("tools/list", {}, caller=Caller("acme", "a", scopes=frozenset({"mcp:call"})))))
    assert refused.details["missing_scopes"] == ["mcp:list"]


def test_the_key_of_a_view_changes_with_the_tenant_and_with_nothing_else() -> None:
    tenants = {"acme": Tenant("acme"), "b": Tenant("b")}
    rules = Authorizer(tenants.get, POLICIES)
    before = rules.key(ALICE)
    assert rules.key(Caller("acme", "bob", scopes=NOBODY)) is before
    assert rules.key(Caller("b", "alice")) is not before
    assert rules.key(Caller("acme", "alice", groups=frozenset({"g"}))) is not before
    assert rules.key(Caller("acme", "alice", kind="service")) is not before
    for changed in (Tenant("acme", read_only=True), Tenant("acme", suspended=True), Tenant("acme", backends=("x",))):
        tenants["acme"] = changed
        assert rules.key(ALICE) is not before


def test_a_policy_that_names_a_subject_tells_subjects_apart(tmp_path: Path) -> None:
    kept = policies(
        a_folder(tmp_path, PERMIT + '@id("no.bob") forbid (principal == Gw::User::"bob", action, resource);')
    )
    rules = policy(kept=kept)
    assert rules.key(ALICE) is not rules.key(BOB)
    assert not rules.decide(a_call(caller=ALICE)).refused
    hidden = rules.decide(a_call(caller=BOB))
    assert (hidden.policies, hidden.refused) == (("no.bob",), "unknown")
    assert rules.sees(ALICE, a_route())
    assert not rules.sees(BOB, a_route())
    # A service account of the same name is somebody else.
    assert rules.sees(Caller("acme", "bob", kind="service", scopes=ALL), a_route())


def test_a_policy_that_names_a_tool_hides_that_tool_alone(tmp_path: Path) -> None:
    forbid = '@id("no.drop") forbid (principal, action, resource == Gw::Tool::"lab.drop");'
    rules = policy(kept=policies(a_folder(tmp_path, PERMIT + forbid)))
    drop = a_route(definition={"name": "drop", "inputSchema": {"type": "object"}})
    assert rules.sees(ALICE, a_route())
    assert not rules.sees(ALICE, drop)
    assert isinstance(rules.decide(a_call(route=drop)).fault("lab_drop"), UnknownName)


def test_groups_decide_where_a_policy_speaks_of_them(tmp_path: Path) -> None:
    permit = '@id("grant.ops") permit (principal in Gw::Group::"ops", action, resource);'
    rules = policy(kept=policies(a_folder(tmp_path, permit)))
    ops = Caller("acme", "alice", groups=frozenset({"ops"}), scopes=ALL)
    assert rules.decide(a_call(caller=ops)).policies == ("grant.ops",)
    assert rules.decide(a_call(caller=ALICE)).refused == "unknown"


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
        ({"path": ["/srv/a"]}, (ARGUMENTS,)),
        ({"amount": 1000}, ("grant.all",)),
        ({"amount": 1001}, ("small",)),
        ({"amount": "5000"}, (ARGUMENTS,)),
        ({"amount": 2**63}, (ARGUMENTS,)),
        ({"amount": 1.5}, (ARGUMENTS,)),
        ({"amount": True}, (ARGUMENTS,)),
        ({}, ("grant.all",)),
        ({"else": {"amount": 5000}}, ("grant.all",)),
    ],
)
def test_policy_sees_typed_canonical_arguments_and_nothing_else(
    tmp_path: Path, arguments: Json, ids: tuple[str, ...]
) -> None:
    rules = policy(kept=policies(a_folder(tmp_path, BY_ARGUMENTS, ARGS)))
    for _ in range(2):  # made, and remembered
        decision = rules.decide(a_call(params={"name": "lab_echo", "arguments": arguments}))
        assert decision.policies == ids
        assert bool(decision.refused) is (ids != ("grant.all",))
    assert rules.sees(ALICE, a_route())
    if ids == ("only.srv",):
        assert fault(decision).message == "Only below /srv."


def test_what_only_arguments_decide_stays_in_view(tmp_path: Path) -> None:
    permit = (
        '@id("grant.small") permit (principal, action == Gw::Action::"tools/call", resource)'
        " when { context.args has amount && context.args.amount < 5 };"
    )
    rules = policy(kept=policies(a_folder(tmp_path, permit, ARGS)))
    assert rules.sees(ALICE, a_route())
    assert rules.lists(ALICE, a_route())
    allowed = rules.decide(a_call(params={"name": "lab_echo", "arguments": {"amount": 3}}))
    refused = rules.decide(a_call(params={"name": "lab_echo", "arguments": {"amount": 7}}))
    assert (allowed.refused, refused.refused) == ("", "denied")


def test_an_approval_that_is_not_the_callers_own_is_told_apart(tmp_path: Path) -> None:
    owner = PERMIT + (
        '@id("approval.owner") @advice("approval:owner")'
        ' forbid (principal, action == Gw::Action::"tools/call", resource) unless { context.approved };'
    )
    rules = policy(kept=policies(a_folder(tmp_path, owner)))
    assert rules.decide(a_call()).approval == "owner"


def test_the_record_is_told_what_policy_saw() -> None:
    caller = Caller("acme", "alice", groups=frozenset({"ops", "dev"}), scopes=ALL)
    context = policy(Tenant("acme", read_only=True)).decide(a_call(caller=caller)).context
    assert '"groups":["dev","ops"]' in context
    assert '"readonly":true' in context
    assert f'"policies":"{POLICIES.now.version}"' in context


def test_an_edit_changes_decisions_and_views_at_once(tmp_path: Path) -> None:
    kept = policies(folder := a_folder(tmp_path))
    rules = policy(kept=kept)
    before = rules.key(ALICE)
    assert not rules.decide(a_call()).refused
    a_folder(tmp_path, '@id("grant.list") permit (principal, action == Gw::Action::"list", resource);')
    kept.now = policies(folder).now
    assert rules.decide(a_call()).refused == "unknown"
    assert rules.key(ALICE) is not before
    assert not rules.sees(ALICE, a_route())


@pytest.mark.parametrize("kind", ["resource", "prompt"])
def test_resources_and_prompts_are_decided_on_as_what_they_are(kind: str, tmp_path: Path) -> None:
    tools_only = '@id("grant.tools") permit (principal, action == Gw::Action::"tools/call", resource);'
    rules = policy(kept=policies(a_folder(tmp_path, tools_only)))
    definition: Json = {"name": "x", "uri": "x://y"} if kind == "resource" else {"name": "x"}
    method = "resources/read" if kind == "resource" else "prompts/get"
    params: Any = {"uri": "x://y"} if kind == "resource" else {"name": "lab_x"}
    route = a_route(definition=definition, effect=0)
    assert not rules.sees(ALICE, route)
    refused = rules.decide(a_call(method, params, route=route)).fault("x://y")
    assert refused.message.startswith(f"Unknown {kind}")


@pytest.mark.parametrize("names", [False, True], ids=["by kind", "by name"])
def test_uris_that_a_client_invents_are_not_remembered(tmp_path: Path, names: bool) -> None:
    by_name = (
        '@id("no") forbid (principal, action == Gw::Action::"resources/read", resource)'
        ' when { resource.uri like "*secret*" };'
    )
    rules = policy(kept=policies(a_folder(tmp_path, PERMIT + (by_name if names else ""))))
    route = a_route(definition={"name": "x", "uri": "x"}, effect=0)
    tracemalloc.start()
    try:
        for number in range(100):
            uri = f"x://{number}" + "y" * 8000
            unlisted = replace(route, name=uri, canonical=f"lab:{uri}")
            assert not rules.decide(a_call("resources/read", {"uri": uri}, route=unlisted)).refused
            assert rules.sees(ALICE, unlisted)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000  # they are 800,000 in all
    secret = replace(route, name="x://secret", canonical="lab:x://secret")
    for _ in range(2):
        assert bool(rules.decide(a_call("resources/read", {"uri": "x://secret"}, route=secret)).refused) is names


def test_long_arguments_that_policy_reads_are_not_remembered(tmp_path: Path) -> None:
    rules = policy(kept=policies(a_folder(tmp_path, BY_ARGUMENTS, ARGS)))
    tracemalloc.start()
    try:
        for number in range(100):
            arguments = {"path": f"/srv/{number}" + "y" * 8000}
            assert not rules.decide(a_call(params={"name": "lab_echo", "arguments": arguments})).refused
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 300_000
