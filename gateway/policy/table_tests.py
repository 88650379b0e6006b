"""Table tests of policies: who asks for what, what should become of it, and which policies should decide.

A row names all the policies that decide it, so none that a row hits can be deleted without that row noticing; one that
no row hits is a mistake of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from gateway.contract.caller import EVERYDAY
from gateway.policy.active_policies import compiled
from gateway.policy.projection import UnreadableArgument
from gateway.policy.ruleset import PolicyCaller, PolicyTarget, Ruleset
from gateway.policy.source import InvalidPolicies, PolicySource, read
from gateway.policy.verdict import judge

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


class TestContext(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scopes: tuple[str, ...] = EVERYDAY
    approved: bool = False
    readonly: bool = False
    suspended: bool = False


class TableRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case. `expect` is what the caller is told; `by` are the ids that decide, all of them."""

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
    """How many rows there are, and every mistake found, in words."""

    rows: int
    policies: int
    mistakes: tuple[str, ...]


def run_tables(folder: Path) -> TableReport:
    """Every row, and whether they hit every policy. Raises `BadPolicies` when the policies cannot be used at all."""
    source = read(folder)
    loaded = compiled(source)
    rows = _rows(source)
    mistakes: list[str] = []
    hit: set[str] = set()
    for place, row in rows:
        outcome, ids = _play(loaded.of(row.tenant), row)
        hit |= ids
        if (outcome, ids) != (row.expect, set(row.by)):
            told = f"{outcome} by {', '.join(sorted(ids)) or 'no policy'}"
            mistakes.append(f"{place}: {row.name}: expected {row.expect} by {', '.join(row.by)}, got {told}")
    every = {id for rules in (loaded.default, *loaded.tenants.values()) for id in rules.notes}
    mistakes += [f"{id}: no row is decided by it" for id in sorted(every - hit)]
    return TableReport(len(rows), len(every), tuple(mistakes))


def _rows(source: PolicySource) -> list[tuple[str, TableRow]]:
    rows: list[tuple[str, TableRow]] = []
    for place, given in source.tests.items():
        for index, each in enumerate(cast("list[Any]", given or [])):
            try:
                rows.append((place, msgspec.convert(each, TableRow)))
            except msgspec.ValidationError as exc:
                raise InvalidPolicies(f"{place}: row {index + 1}: {exc}") from exc
    return rows


def _play(rules: Ruleset, row: TableRow) -> tuple[str, set[str]]:
    asker = PolicyCaller(
        tenant=row.tenant,
        kind="service" if row.who.service else "user",
        subject=row.who.service or row.who.user,
        groups=frozenset(row.who.groups),
        scopes=frozenset(row.context.scopes),
        readonly=row.context.readonly,
        suspended=row.context.suspended,
    )
    action, target = _target(row)
    projection = rules.projections.of(target.id)
    try:
        args = projection.read(row.args) if projection else ()
    except UnreadableArgument:
        return "deny", {"policy.arguments"}
    judgement = judge(rules, asker, action, target, args=args, approved=row.context.approved)
    return judgement.outcome, set(judgement.policies)


def _target(row: TableRow) -> tuple[str, PolicyTarget]:
    asked: Mapping[tuple[str, Kind], TestAction | None] = {
        ("tools/call", "Tool"): row.tool,
        ("prompts/get", "Prompt"): row.prompt,
        ("resources/read", "Resource"): row.resource,
    }
    for (action, kind), what in asked.items():
        if what is not None:
            mark = ":" if kind == "Resource" else "."
            namespace, _, name = what.id.partition(mark)
            return action, PolicyTarget(kind, what.id, namespace, name, what.effect, what.pinned, what.granted)
    return "list", PolicyTarget("Tenant", row.tenant)
