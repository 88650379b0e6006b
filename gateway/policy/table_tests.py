"""Table tests of policies, run by `gatehouse policy test`. A row states a request, its outcome, and what decides it.

A row lists all deciding policies, so it fails if one of them is deleted. A policy that no row covers is reported.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from gateway.contract.caller import DEFAULT_SCOPES
from gateway.policy.active_policies import compile_policies
from gateway.policy.projection import UnreadableArgument
from gateway.policy.ruleset import PolicyCaller, PolicyTarget, Ruleset
from gateway.policy.source import InvalidPolicies, PolicySource, read_folder
from gateway.policy.verdict import determine_verdict

Kind = Literal["Tenant", "Tool", "Prompt", "Resource"]


class TestCaller(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: str = ""
    service: str = ""
    groups: list[str] = []


class TestAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`id` is canonical: `namespace.tool`, or `namespace:uri`."""

    id: str
    effect: int = 0
    pinned: bool = True
    granted: bool = True
    needs_approval: bool | None = None
    """Default: whether the effect is 3."""


class TestContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    approved: bool = False
    readonly: bool = False
    suspended: bool = False


class TableRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One test case. `expect` is the outcome; `by` are the ids of all deciding policies."""

    name: str
    expect: Literal["allow", "deny", "scope", "approval", "hidden"]
    by: list[str]
    tenant: str = "default"
    who: TestCaller = TestCaller(user="alice")
    tool: TestAction | None = None
    prompt: TestAction | None = None
    resource: TestAction | None = None
    context: TestContext = TestContext()
    args: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class TableReport:
    """Number of rows and policies, and a message for every problem."""

    rows: int
    policies: int
    problems: tuple[str, ...]


def run_tables(folder: Path) -> TableReport:
    """Run every row and check that the rows cover every policy. Raises `InvalidPolicies`."""
    source = read_folder(folder)
    loaded = compile_policies(source)
    rows = _rows(source)
    problems: list[str] = []
    hit: set[str] = set()
    for place, row in rows:
        outcome, ids = _evaluate(loaded.for_tenant(row.tenant), row)
        hit |= ids
        if (outcome, ids) != (row.expect, set(row.by)):
            actual = f"{outcome} by {', '.join(sorted(ids)) or 'no policy'}"
            problems.append(f"{place}: {row.name}: expected {row.expect} by {', '.join(row.by)}, got {actual}")
    every = {id for rules in (loaded.default, *loaded.tenants.values()) for id in rules.notes}
    problems += [f"{id}: no row covers this policy" for id in sorted(every - hit)]
    return TableReport(len(rows), len(every), tuple(problems))


def _rows(source: PolicySource) -> list[tuple[str, TableRow]]:
    rows: list[tuple[str, TableRow]] = []
    for place, document in source.tests.items():
        for index, each in enumerate(cast("list[Any]", document or [])):
            try:
                rows.append((place, msgspec.convert(each, TableRow)))
            except msgspec.ValidationError as exc:
                raise InvalidPolicies(f"{place}: row {index + 1}: {exc}") from exc
    return rows


def _evaluate(rules: Ruleset, row: TableRow) -> tuple[str, set[str]]:
    caller = PolicyCaller(
        tenant=row.tenant,
        kind="service" if row.who.service else "user",
        subject=row.who.service or row.who.user,
        groups=frozenset(row.who.groups),
        scopes=frozenset(row.context.scopes),
        readonly=row.context.readonly,
        suspended=row.context.suspended,
    )
    action, target = _target(row)
    projection = rules.projections.for_tool(target.id)
    try:
        args = projection.read(row.args) if projection else ()
    except UnreadableArgument:
        return "deny", {"policy.arguments"}
    verdict = determine_verdict(rules, caller, action, target, args=args, approved=row.context.approved)
    return verdict.outcome, set(verdict.policies)


def _target(row: TableRow) -> tuple[str, PolicyTarget]:
    actions: Mapping[tuple[str, Kind], TestAction | None] = {
        ("tools/call", "Tool"): row.tool,
        ("prompts/get", "Prompt"): row.prompt,
        ("resources/read", "Resource"): row.resource,
    }
    for (action, kind), test_action in actions.items():
        if test_action is not None:
            separator = ":" if kind == "Resource" else "."
            namespace, _, name = test_action.id.partition(separator)
            asked = test_action.effect >= 3 if test_action.needs_approval is None else test_action.needs_approval
            return action, PolicyTarget(
                kind,
                test_action.id,
                namespace,
                name,
                test_action.effect,
                test_action.pinned,
                test_action.granted,
                asked,
            )
    return "list", PolicyTarget("Tenant", row.tenant)
