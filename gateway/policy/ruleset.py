"""The policies of one tenant, parsed, validated and asked: the only place that knows cedarpy's engine.

The schema goes with every question, and any error or missing decision is a denial: without them a value of the wrong
type would switch a `forbid` off.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import cedarpy
from cedarpy import pst

from gateway.policy.partial_evaluation import attributes, relaxed
from gateway.policy.projection import Projections, Value, parse_projections
from gateway.policy.source import InvalidPolicies, PolicySet

log = logging.getLogger("gatehouse.policy")

# The library types its dictionaries only in part.
_is_authorized = cast("Callable[..., cedarpy.AuthzResult]", cast("Any", cedarpy).is_authorized)
_validate_policies = cast("Callable[..., cedarpy.ValidationResult]", cast("Any", cedarpy).validate_policies)

BROKEN: Final = "policy.error"
"""In place of policy ids when no decision could be made."""
_LATER: Final = frozenset({"scopes", "approved", "args"})
_NAMING: Final = frozenset({"name", "uri"})

View = Literal["real", "listed", "seen"]
"""Decide as it stands; or with scopes, approval and arguments left open; or with read-only mode left open too."""


@dataclass(frozen=True, slots=True)
class PolicyCaller:
    """Who asks, and in which circumstances, as policy sees it."""

    tenant: str
    kind: Literal["user", "service"]
    subject: str
    groups: frozenset[str]
    scopes: frozenset[str]
    readonly: bool = False
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """What is asked for. Of the kind Tenant: the lists of the asker's own."""

    kind: Literal["Tenant", "Tool", "Prompt", "Resource"]
    id: str
    namespace: str = ""
    name: str = ""
    """The backend's own name or URI."""
    effect: int = 0
    pinned: bool = True
    granted: bool = True
    """Whether the asker's tenant has the backend."""


@dataclass(frozen=True, slots=True)
class PolicyNote:
    """What a policy says of itself beside its condition."""

    id: str
    effect: Literal["permit", "forbid"]
    advice: str = ""
    """`scope:NAME` or `approval:WHOM`: what would make the difference."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CedarDecision:
    allowed: bool
    policies: tuple[str, ...]
    """The ids that decided it; none when nothing permits."""


@dataclass(frozen=True, slots=True, eq=False)
class Ruleset:
    """Made by `compile_ruleset`; equal only to itself."""

    notes: Mapping[str, PolicyNote]
    projections: Projections
    names_subjects: bool
    """Whether any policy speaks of one user or service account."""
    _schema: cedarpy.Schema
    _sets: Mapping[View, cedarpy.PolicySet]
    _named: frozenset[str] = field(default=frozenset[str]())
    _looks_at_names: bool = False

    def label(self, target_id: str) -> str:
        """Equal for targets that no policy tells apart by name."""
        return target_id if self._looks_at_names or target_id in self._named else ""

    def ask(
        self,
        asker: PolicyCaller,
        action: str,
        target: PolicyTarget,
        *,
        view: View = "real",
        approved: bool = False,
        args: tuple[tuple[str, Value], ...] = (),
    ) -> CedarDecision:
        """Allowed only when Cedar says so, and says nothing else."""
        context: dict[str, Any] = {
            "tenant": {"__entity": _uid("Tenant", asker.tenant)},
            "scopes": sorted(asker.scopes),
            "approved": approved,
            "readonly": asker.readonly,
            "suspended": asker.suspended,
        }
        if target.kind == "Tool":
            context["args"] = dict(args)
        request: dict[str, Any] = {
            "principal": _uid(_PRINCIPAL[asker.kind], asker.subject),
            "action": _uid("Action", action),
            "resource": _uid(target.kind, target.id),
            "context": context,
        }
        result = _is_authorized(request, self._sets[view], _entities(asker, target), self._schema)
        errors = result.diagnostics.errors
        if errors or result.decision not in (cedarpy.Decision.Allow, cedarpy.Decision.Deny):
            log.error("no decision on %s %s, so it is denied: %s", action, target.id, " ".join(errors)[:500])
            return CedarDecision(False, (BROKEN,))
        ids = cast("dict[str, str]", cast("Any", result.diagnostics).id_annotations_by_reason)
        return CedarDecision(result.decision is cedarpy.Decision.Allow, tuple(sorted(ids.values())))


def compile_ruleset(schema: str, org: Mapping[str, str], room: PolicySet, tenant: str | None) -> Ruleset:
    """Parse and validate the guards and one tenant's own policies together. Raises `BadPolicies`."""
    try:
        projections = parse_projections(room.args)
    except ValueError as exc:
        raise InvalidPolicies(f"{room.args_file}: {exc}") from exc
    texts = {**org, **room.policies}
    parsed = {name: _parse(name, text) for name, text in texts.items()}
    problems = [*_id_problems(parsed, org), *_foreign_problems(parsed, tenant)]
    if problems:
        raise InvalidPolicies(*problems)
    try:
        typed = cedarpy.Schema.from_str(f"{schema}\n{projections.schema()}\n", release_gil=True)
        whole = cedarpy.PolicySet.from_str("\n".join(texts.values()), release_gil=True)
    except ValueError as exc:
        raise InvalidPolicies(f"schema: {_one_line(exc)}") from exc
    for name, text in texts.items():
        problems += _type_problems(name, text, typed)
    if problems:
        raise InvalidPolicies(*problems)
    return _assembled(whole.to_pst(), typed, projections)


def _assembled(tree: pst.PolicySet, schema: cedarpy.Schema, projections: Projections) -> Ruleset:
    uids = pst.entity_uids(tree)
    return Ruleset(
        notes={note.id: note for note in map(_note, tree.static_policies.values())},
        projections=projections,
        names_subjects=any(uid.type.basename in _PRINCIPAL.values() for uid in uids),
        _schema=schema,
        _sets={
            "real": cedarpy.PolicySet.from_pst(tree),
            "listed": cedarpy.PolicySet.from_pst(relaxed(tree, _LATER)),
            "seen": cedarpy.PolicySet.from_pst(relaxed(tree, _LATER | {"readonly"})),
        },
        _named=frozenset(uid.id for uid in uids if uid.type.basename in ("Tool", "Prompt", "Resource")),
        _looks_at_names=bool(attributes(tree) & _NAMING),
    )


# ---- what can be wrong ----


def _parse(name: str, text: str) -> pst.PolicySet:
    try:
        return cedarpy.PolicySet.from_str(text, release_gil=True).to_pst()
    except ValueError as exc:
        raise InvalidPolicies(f"{name}: {_one_line(exc)}") from exc


def _id_problems(parsed: Mapping[str, pst.PolicySet], org: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for name, tree in parsed.items():
        if tree.templates:
            problems.append(f"{name}: templates are not linked by anything here")
        for policy in tree.static_policies.values():
            id = policy.annotations.get("id", "")
            if not id:
                problems.append(f'{name}: a {policy.effect} has no @id("…"); decisions are recorded by it')
            elif id in seen:
                problems.append(f"{name}: {id} is another policy's id")
            elif id.startswith("guard.") and name not in org:
                problems.append(f"{name}: {id}: ids that begin with guard. are the organisation's")
            seen.add(id)
    return problems


def _foreign_problems(parsed: Mapping[str, pst.PolicySet], tenant: str | None) -> list[str]:
    """A policy is of its own tenant and nobody else; guards and defaults are of no tenant in particular."""
    return [
        f"{name}: it names the tenant {uid.id}"
        for name, tree in parsed.items()
        for uid in sorted(pst.entity_uids(tree), key=str)
        if uid.type.basename == "Tenant" and uid.id != tenant
    ]


def _type_problems(name: str, text: str, schema: cedarpy.Schema) -> list[str]:
    checked = _validate_policies(text, schema, release_gil=True)
    ids = cast("dict[str, str]", cast("Any", checked).id_annotations_by_policy_id)
    return [f"{name}: {ids.get(each.policy_id, '')}: {_one_line(each.error)}" for each in checked.errors]


def _one_line(exc: object) -> str:
    return " ".join(str(exc).split())[:400]


def _note(policy: pst.Template) -> PolicyNote:
    said = policy.annotations
    return PolicyNote(said["id"], policy.effect, said.get("advice", ""), said.get("reason", ""))


# ---- a question as Cedar takes it ----


def _entities(asker: PolicyCaller, target: PolicyTarget) -> list[dict[str, Any]]:
    tenant = _uid("Tenant", asker.tenant)
    groups = [_uid("Group", group) for group in sorted(asker.groups)]
    entities = [
        _entity(tenant),
        *(_entity(group, parents=[tenant]) for group in groups),
        _entity(
            _uid(_PRINCIPAL[asker.kind], asker.subject), {"tenant": {"__entity": tenant}}, parents=[*groups, tenant]
        ),
    ]
    if target.kind != "Tenant":
        server = _uid("Server", target.namespace)
        attributes: dict[str, Any] = {"uri" if target.kind == "Resource" else "name": target.name}
        if target.kind == "Tool":
            attributes |= {"effect": target.effect, "pinned": target.pinned}
        entities += [
            _entity(server, parents=[tenant] if target.granted else []),
            _entity(_uid(target.kind, target.id), attributes, parents=[server]),
        ]
    elif target.id != asker.tenant:
        entities.append(_entity(_uid("Tenant", target.id)))
    return entities


def _entity(
    uid: dict[str, str], attributes: dict[str, Any] | None = None, parents: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    return {"uid": uid, "attrs": attributes or {}, "parents": parents or []}


def _uid(kind: str, id: str) -> dict[str, str]:
    return {"type": f"Gw::{kind}", "id": id}


_PRINCIPAL: Final = {"user": "User", "service": "ServiceAccount"}
