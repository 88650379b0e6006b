"""The annotations that require approval by a group."""

from pathlib import Path

import pytest

from gateway.policy.active_policies import load
from gateway.policy.approval_rules import ApprovalRule, combine_rules, parse_rule
from gateway.policy.ruleset import PolicyCaller, PolicyTarget
from gateway.policy.source import InvalidPolicies
from gateway.policy.verdict import determine_verdict
from tests.gateway.policy.folders import policy_folder


def test_annotations_name_group_number_and_time() -> None:
    assert parse_rule({"approval": "group:platform"}) == ApprovalRule("platform", 1, 3600)
    full = {"approval": "group:a-b", "approvers": "3", "within": "30m"}
    assert parse_rule(full) == ApprovalRule("a-b", 3, 1800)
    assert parse_rule({"id": "x"}) is None


@pytest.mark.parametrize(
    "annotations",
    [
        {"approval": "platform"},
        {"approval": "group:"},
        {"approval": "group:a,group:b"},
        {"approval": "self"},
        {"approval": "group:a", "approvers": "0"},
        {"approval": "group:a", "approvers": "two"},
        {"approval": "group:a", "within": "soon"},
        {"approval": "group:a", "within": "8d"},
        {"approvers": "2"},
        {"within": "1h"},
    ],
)
def test_invalid_annotations_are_rejected(annotations: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="@"):
        parse_rule(annotations)


def test_several_policies_need_every_group_within_the_shortest_time() -> None:
    found = combine_rules([ApprovalRule("a", 1, 60), ApprovalRule("b", 1, 30), ApprovalRule("a", 2, 90)])
    assert found is not None
    assert (found.groups, found.seconds) == ((("a", 2), ("b", 1)), 30)
    both, one = frozenset({"a", "b"}), frozenset({"a"})
    assert found.is_met([both, one])
    assert not found.is_met([both])
    assert not found.is_met([one, one])
    assert combine_rules([]) is None


BODY = 'forbid (principal, action == Gw::Action::"tools/call", resource) when { !context.approved };'
UNCONDITIONAL = BODY.replace("!context.approved", "resource.effect > 1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'@id("a") @approval("platform") {BODY}', "@approval must name a group"),
        (
            f'@id("a") @approval("group:p") {BODY.replace("!context.approved", "resource.effect > 1")}',
            "context.approved",
        ),
        (f'@id("a") @approval("group:p") @advice("approval:self") {BODY}', "use either @approval or @advice"),
        ('@id("a") @approval("group:p") permit (principal, action, resource);', "belongs on a forbid"),
    ],
)
def test_a_policy_whose_approval_cannot_work_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    folder = policy_folder(tmp_path)
    (folder / "default" / "20.cedar").write_text(text)
    with pytest.raises(InvalidPolicies, match=problem):
        load(folder)


def test_a_group_outranks_the_caller_and_a_denial_outranks_both(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    (folder / "default" / "20.cedar").write_text(f'@id("a") @approval("group:p") @reason("Ask p.") {BODY}')
    rules = load(folder).default
    caller = PolicyCaller("default", "user", "", frozenset(), frozenset({"mcp:call", "mcp:call:write"}))
    target = PolicyTarget("Tool", "lab.drop", "lab", "drop", 3, needs_approval=True)
    verdict = determine_verdict(rules, caller, "tools/call", target)
    assert (verdict.outcome, verdict.policies) == ("approval", ("a", "approval.destructive"))
    assert (verdict.approval, verdict.reason) == ("a member of the group p", "Ask p.")
    assert rules.approver_groups == {"p"}
    never = '@id("never") forbid (principal, action, resource is Gw::Tool) when { resource.effect >= 3 }'
    # Reading a scope keeps the tool visible, so that the outcome is a denial.
    (folder / "default" / "30.cedar").write_text(f'{never} unless {{ context.scopes.contains("x") }};')
    rules = load(folder).default
    assert determine_verdict(rules, caller, "tools/call", target).outcome == "deny"
