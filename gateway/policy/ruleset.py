"""The compiled policies of one tenant. The only module that calls the cedarpy engine.

Every evaluation includes the schema, and any error is a denial. Otherwise a value of the wrong type would disable a
`forbid`.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import cedarpy
from cedarpy import pst

from gateway.policy.approval_rules import ApprovalRule, parse_rule
from gateway.policy.partial_evaluation import attributes_read, relax_policies
from gateway.policy.projection import Projections, Value, parse_projections
from gateway.policy.source import InvalidPolicies, PolicySet

log = logging.getLogger("gatehouse.policy")

# cedarpy's type annotations are incomplete.
_is_authorized = cast("Callable[..., cedarpy.AuthzResult]", cast("Any", cedarpy).is_authorized)
_validate_policies = cast("Callable[..., cedarpy.ValidationResult]", cast("Any", cedarpy).validate_policies)

EVALUATION_ERROR: Final = "policy.error"
"""Reported instead of policy ids if the evaluation fails."""
NEEDS_APPROVAL: Final = "needs_approval"
"""Attribute of a tool. Policy folders that were copied before it existed do not declare it."""
_DEFERRED: Final = frozenset({"scopes", "approved", "args"})
_COMMENT: Final = re.compile(r"//[^\n]*")
_NAME_ATTRIBUTES: Final = frozenset({"name", "uri"})

View = Literal["exact", "listed", "visible"]
"""`exact` evaluates the request as it is. `listed` assumes scopes, approval and arguments in the caller's favour;
`visible` also read-only mode."""


@dataclass(frozen=True, slots=True)
class PolicyCaller:
    """The caller and its tenant's state, as policy sees them."""

    tenant: str
    kind: Literal["user", "service"]
    subject: str
    groups: frozenset[str]
    scopes: frozenset[str]
    readonly: bool = False
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """The target of a request. The kind Tenant stands for the lists of the caller's own tenant."""

    kind: Literal["Tenant", "Tool", "Prompt", "Resource"]
    id: str
    namespace: str = ""
    name: str = ""
    """The backend's own name or URI."""
    effect: int = 0
    pinned: bool = True
    granted: bool = True
    """Whether the caller's tenant may use the backend."""
    needs_approval: bool = False
    """Whether the effect of the tool calls for approval, by `trust` of its backend."""


@dataclass(frozen=True, slots=True)
class PolicyNote:
    """Id, effect and annotations of a policy."""

    id: str
    effect: Literal["permit", "forbid"]
    advice: str = ""
    """`scope:NAME` or `approval:self`: what would lift the denial."""
    reason: str = ""
    approval: ApprovalRule | None = None
    """Approval by a group that would lift the denial."""


@dataclass(frozen=True, slots=True)
class CedarDecision:
    allowed: bool
    policies: tuple[str, ...]
    """Ids of the deciding policies; empty if no policy permits the request."""


@dataclass(frozen=True, slots=True, eq=False)
class Ruleset:
    """Compiled policies, built by `compile_ruleset`. Compares by identity."""

    notes: Mapping[str, PolicyNote]
    projections: Projections
    approver_groups: frozenset[str]
    """Groups whose members may approve calls."""
    names_subjects: bool
    """Whether any policy names a single user or service account."""
    _schema: cedarpy.Schema
    _policy_sets: Mapping[View, cedarpy.PolicySet]
    _named_ids: frozenset[str] = field(default=frozenset[str]())
    _reads_names: bool = False
    _knows_needs_approval: bool = True

    def label(self, target_id: str) -> str:
        """Return a cache label; equal for targets that no policy distinguishes by name."""
        return target_id if self._reads_names or target_id in self._named_ids else ""

    def evaluate(
        self,
        caller: PolicyCaller,
        action: str,
        target: PolicyTarget,
        *,
        view: View = "exact",
        approved: bool = False,
        args: tuple[tuple[str, Value], ...] = (),
    ) -> CedarDecision:
        """Evaluate a request. Allowed only if Cedar allows it without any error."""
        context: dict[str, Any] = {
            "tenant": {"__entity": _uid("Tenant", caller.tenant)},
            "scopes": sorted(caller.scopes),
            "approved": approved,
            "readonly": caller.readonly,
            "suspended": caller.suspended,
        }
        if target.kind == "Tool":
            context["args"] = dict(args)
        request: dict[str, Any] = {
            "principal": _uid(_PRINCIPAL_TYPES[caller.kind], caller.subject),
            "action": _uid("Action", action),
            "resource": _uid(target.kind, target.id),
            "context": context,
        }
        entities = _entities(caller, target, self._knows_needs_approval)
        result = _is_authorized(request, self._policy_sets[view], entities, self._schema)
        errors = result.diagnostics.errors
        if errors or result.decision not in (cedarpy.Decision.Allow, cedarpy.Decision.Deny):
            log.error("policies: evaluating %s %s failed; denied: %s", action, target.id, " ".join(errors)[:500])
            return CedarDecision(False, (EVALUATION_ERROR,))
        ids = cast("dict[str, str]", cast("Any", result.diagnostics).id_annotations_by_reason)
        return CedarDecision(result.decision is cedarpy.Decision.Allow, tuple(sorted(ids.values())))


def compile_ruleset(schema: str, org: Mapping[str, str], policy_set: PolicySet, tenant: str | None) -> Ruleset:
    """Parse and validate the guards together with the policies of one tenant. Raises `InvalidPolicies`."""
    try:
        projections = parse_projections(policy_set.args)
    except ValueError as exc:
        raise InvalidPolicies(f"{policy_set.args_file}: {exc}") from exc
    texts = {**org, **policy_set.policies}
    parsed = {name: _parse(name, text) for name, text in texts.items()}
    problems = [*_id_problems(parsed, org), *_foreign_problems(parsed, tenant), *_approval_problems(parsed)]
    if problems:
        raise InvalidPolicies(*problems)
    try:
        cedar_schema = cedarpy.Schema.from_str(f"{schema}\n{projections.schema()}\n", release_gil=True)
        policies = cedarpy.PolicySet.from_str("\n".join(texts.values()), release_gil=True)
    except ValueError as exc:
        raise InvalidPolicies(f"schema: {_one_line(exc)}") from exc
    for name, text in texts.items():
        problems += _type_problems(name, text, cedar_schema)
    if problems:
        raise InvalidPolicies(*problems)
    knows_needs_approval = re.search(rf"\b{NEEDS_APPROVAL}\s*:", _COMMENT.sub("", schema)) is not None
    return _build_ruleset(policies.to_pst(), cedar_schema, projections, knows_needs_approval)


def _build_ruleset(
    tree: pst.PolicySet, schema: cedarpy.Schema, projections: Projections, knows_needs_approval: bool
) -> Ruleset:
    uids = pst.entity_uids(tree)
    notes = {note.id: note for note in map(_note, tree.static_policies.values())}
    return Ruleset(
        notes=notes,
        approver_groups=frozenset(note.approval.group for note in notes.values() if note.approval),
        projections=projections,
        names_subjects=any(uid.type.basename in _PRINCIPAL_TYPES.values() for uid in uids),
        _schema=schema,
        _policy_sets={
            "exact": cedarpy.PolicySet.from_pst(tree),
            "listed": cedarpy.PolicySet.from_pst(relax_policies(tree, _DEFERRED)),
            "visible": cedarpy.PolicySet.from_pst(relax_policies(tree, _DEFERRED | {"readonly"})),
        },
        _named_ids=frozenset(uid.id for uid in uids if uid.type.basename in ("Tool", "Prompt", "Resource")),
        _reads_names=bool(attributes_read(tree) & _NAME_ATTRIBUTES),
        _knows_needs_approval=knows_needs_approval,
    )


# ---- validation ----


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
            problems.append(f"{name}: policy templates are not supported")
        for policy in tree.static_policies.values():
            id = policy.annotations.get("id", "")
            if not id:
                problems.append(f'{name}: a {policy.effect} has no @id("…"); the audit log needs it')
            elif id in seen:
                problems.append(f"{name}: the id {id} is used by another policy")
            elif id.startswith("guard.") and name not in org:
                problems.append(f"{name}: {id}: ids that start with guard. are reserved for org/")
            seen.add(id)
    return problems


def _foreign_problems(parsed: Mapping[str, pst.PolicySet], tenant: str | None) -> list[str]:
    """Find policies that name another tenant. Guards and default policies may not name any."""
    return [
        f"{name}: a policy here may not name the tenant {uid.id}"
        for name, tree in parsed.items()
        for uid in sorted(pst.entity_uids(tree), key=str)
        if uid.type.basename == "Tenant" and uid.id != tenant
    ]


def _approval_problems(parsed: Mapping[str, pst.PolicySet]) -> list[str]:
    """Find invalid annotations, and policies whose approval could not lift the denial."""
    problems: list[str] = []
    for name, tree in parsed.items():
        for policy in tree.static_policies.values():
            id = policy.annotations.get("id", "")
            try:
                rule = parse_rule(policy.annotations)
            except ValueError as exc:
                problems.append(f"{name}: {id}: {exc}")
                continue
            if rule is None:
                continue
            if policy.effect != "forbid":
                problems.append(f"{name}: {id}: @approval belongs on a forbid, not on a permit")
            elif "approved" not in attributes_read(policy):
                problems.append(f"{name}: {id}: @approval needs `!context.approved` in its condition")
            elif policy.annotations.get("advice"):
                problems.append(f"{name}: {id}: use either @approval or @advice, not both")
    return problems


def _type_problems(name: str, text: str, schema: cedarpy.Schema) -> list[str]:
    checked = _validate_policies(text, schema, release_gil=True)
    ids = cast("dict[str, str]", cast("Any", checked).id_annotations_by_policy_id)
    return [f"{name}: {ids.get(each.policy_id, '')}: {_one_line(each.error)}" for each in checked.errors]


def _one_line(exc: object) -> str:
    return " ".join(str(exc).split())[:400]


def _note(policy: pst.Template) -> PolicyNote:
    annotations = policy.annotations
    return PolicyNote(
        annotations["id"],
        policy.effect,
        annotations.get("advice", ""),
        annotations.get("reason", ""),
        parse_rule(annotations),
    )


# ---- Cedar requests ----


def _entities(caller: PolicyCaller, target: PolicyTarget, knows_needs_approval: bool) -> list[dict[str, Any]]:
    tenant = _uid("Tenant", caller.tenant)
    groups = [_uid("Group", group) for group in sorted(caller.groups)]
    entities = [
        _entity(tenant),
        *(_entity(group, parents=[tenant]) for group in groups),
        _entity(
            _uid(_PRINCIPAL_TYPES[caller.kind], caller.subject),
            {"tenant": {"__entity": tenant}},
            parents=[*groups, tenant],
        ),
    ]
    if target.kind != "Tenant":
        server = _uid("Server", target.namespace)
        attributes: dict[str, Any] = {"uri" if target.kind == "Resource" else "name": target.name}
        if target.kind == "Tool":
            attributes |= {"effect": target.effect, "pinned": target.pinned}
            if knows_needs_approval:
                attributes[NEEDS_APPROVAL] = target.needs_approval
        entities += [
            _entity(server, parents=[tenant] if target.granted else []),
            _entity(_uid(target.kind, target.id), attributes, parents=[server]),
        ]
    elif target.id != caller.tenant:
        entities.append(_entity(_uid("Tenant", target.id)))
    return entities


def _entity(
    uid: dict[str, str], attributes: dict[str, Any] | None = None, parents: list[dict[str, str]] | None = None
) -> dict[str, Any]:
    return {"uid": uid, "attrs": attributes or {}, "parents": parents or []}


def _uid(kind: str, id: str) -> dict[str, str]:
    return {"type": f"Gw::{kind}", "id": id}


_PRINCIPAL_TYPES: Final = {"user": "User", "service": "ServiceAccount"}
