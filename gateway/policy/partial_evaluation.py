"""Partial evaluation: policies with unknown context attributes assumed in the caller's favour.

The gateway hides a name that no scope, approval or argument could make usable. To find out, each part of a condition
that reads one of these attributes is replaced by the value that favours the caller; the rest is evaluated as usual.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from cedarpy import pst

Expr = Any


def relax_policies(policies: pst.PolicySet, unknown: frozenset[str]) -> pst.PolicySet:
    """Return the policies with every condition on these context attributes assumed in the caller's favour."""
    return replace(
        policies,
        static_policies={id: _relax_policy(each, unknown) for id, each in policies.static_policies.items()},
    )


def attributes_read(node: Any) -> frozenset[str]:
    """Return the names of all attributes that the policy tree reads, of any entity."""
    return frozenset(each.attr for each in _descendants(node) if isinstance(each, pst.GetAttr))


def _relax_policy(policy: pst.Template, unknown: frozenset[str]) -> pst.Template:
    permits = policy.effect == "permit"
    clauses: list[pst.Clause] = []
    for clause in policy.clauses:
        applies = permits if isinstance(clause, pst.When) else not permits
        clauses.append(replace(clause, expr=_relax_expression(clause.expr, applies, unknown)))
    return replace(policy, clauses=tuple(clauses))


def _relax_expression(expr: Expr, assumed: bool, unknown: frozenset[str]) -> Expr:
    if not _reads_unknown(expr, unknown):
        return expr
    match expr:
        case pst.BinaryOp("and" | "or"):
            return replace(
                expr,
                left=_relax_expression(expr.left, assumed, unknown),
                right=_relax_expression(expr.right, assumed, unknown),
            )
        case pst.UnaryOp("not"):
            return replace(expr, arg=_relax_expression(expr.arg, not assumed, unknown))
        case pst.IfThenElse():
            then, otherwise = (
                _relax_expression(expr.then_expr, assumed, unknown),
                _relax_expression(expr.else_expr, assumed, unknown),
            )
            if _reads_unknown(expr.cond, unknown):
                return pst.BinaryOp("or" if assumed else "and", then, otherwise)
            return replace(expr, then_expr=then, else_expr=otherwise)
        case _:
            return pst.BoolLit(assumed)


def _reads_unknown(expr: Expr, unknown: frozenset[str]) -> bool:
    if isinstance(expr, pst.GetAttr) and expr.base == pst.Var("context"):
        return expr.attr in unknown
    if isinstance(expr, pst.HasAttr) and expr.base == pst.Var("context"):
        return expr.attrs[0] in unknown
    # The context as a whole contains the unknown attributes.
    return expr == pst.Var("context") or any(_reads_unknown(each, unknown) for each in _children(expr))


def _descendants(node: Any) -> list[Any]:
    found, pending = list[Any](), [node]
    while pending:
        each = pending.pop()
        found.append(each)
        pending += _children(each)
    return found


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    if isinstance(node, tuple):
        return list(cast("tuple[Any, ...]", node))
    if is_dataclass(node) and not isinstance(node, type):
        return [getattr(node, each.name) for each in fields(node)]
    return []
