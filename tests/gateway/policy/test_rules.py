"""Who sees what, and who may do what."""

import pytest

from gateway.contract import Caller
from gateway.errors import Kind
from gateway.policy.rules import Decision, Policy
from gateway.state.tenants import Tenant
from tests.gateway.fakes import ALICE, FakeBackend, a_call, a_route

NOBODY = frozenset[str]()
ALL = frozenset({"mcp:list", "mcp:call", "mcp:call:write"})


def policy(tenant: Tenant | None) -> Policy:
    return Policy({"acme": tenant}.get)


def decided(effect: int, scopes: frozenset[str] = ALL, tenant: Tenant | None = Tenant("acme")) -> Decision:
    caller = Caller("acme", "alice", scopes=scopes)
    return policy(tenant).decide(a_call(caller=caller, route=a_route(effect=effect)))


@pytest.mark.parametrize("effect", [0, 1, 2])
def test_the_default_scopes_permit_reading_and_writing(effect: int) -> None:
    assert decided(effect) == Decision(("default.permit",))


def test_what_destroys_needs_approval() -> None:
    decision = decided(3)
    assert (decision.fault, decision.needs_approval) == (None, True)


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
    fault = decided(effect, scopes).fault
    assert fault is not None
    assert (fault.kind, fault.details["missing_scopes"]) == (Kind.DENIED, missing)
    assert fault.suggested_fix


@pytest.mark.parametrize(("effect", "allowed"), [(0, True), (1, False), (2, False), (3, False)])
def test_a_read_only_tenant_only_reads(effect: int, allowed: bool) -> None:
    tenant = Tenant("acme", read_only=True)
    decision = decided(effect, tenant=tenant)
    assert (decision.fault is None) is allowed
    assert policy(tenant).lists(ALICE, a_route(effect=effect)) is allowed
    assert policy(tenant).sees(ALICE, a_route(effect=effect))


@pytest.mark.parametrize("tenant", [None, Tenant("acme", suspended=True)])
def test_an_unknown_or_suspended_tenant_may_do_nothing(tenant: Tenant | None) -> None:
    fault = decided(0, tenant=tenant).fault
    assert fault is not None
    assert fault.kind is Kind.DENIED
    assert not policy(tenant).sees(ALICE, a_route())


@pytest.mark.parametrize(
    ("patterns", "seen"), [(("*",), True), ((), False), (("lab",), True), (("l*", "x"), True), (("LAB",), False)]
)
def test_a_tenant_sees_the_backends_its_patterns_name(patterns: tuple[str, ...], seen: bool) -> None:
    route = a_route(FakeBackend("lab"))
    assert policy(Tenant("acme", backends=patterns)).sees(ALICE, route) is seen


def test_lists_need_their_own_scope() -> None:
    decide = policy(Tenant("acme")).decide_list
    assert decide(a_call("tools/list", {})).fault is None
    refused = decide(a_call("tools/list", {}, caller=Caller("acme", "a", scopes=frozenset({"mcp:call"})))).fault
    assert refused is not None
    assert refused.details["missing_scopes"] == ["mcp:list"]


def test_the_key_of_a_view_changes_with_the_tenant_and_with_nothing_else() -> None:
    tenants = {"acme": Tenant("acme"), "b": Tenant("b")}
    rules = Policy(tenants.get)
    before = rules.key(ALICE)
    assert rules.key(Caller("acme", "bob", scopes=NOBODY)) == before
    assert rules.key(Caller("b", "alice")) != before
    for changed in (Tenant("acme", read_only=True), Tenant("acme", suspended=True), Tenant("acme", backends=("x",))):
        tenants["acme"] = changed
        assert rules.key(ALICE) != before
        hash(rules.key(ALICE))
