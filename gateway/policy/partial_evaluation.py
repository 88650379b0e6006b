"""Policies with what is not known yet left open: whether something could be allowed at all.

A name that no scope, approval or argument could make usable is hidden. So each part of a condition that asks for one of
them is taken to be as the caller would need it, and the rest is decided as it stands.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from cedarpy import pst

Expr = Any


def relaxed(policies: pst.PolicySet, unknown: frozenset[str]) -> pst.PolicySet:
    """The same set with every question about these attributes of the context answered in the caller's favour."""
    return replace(
        policies,
        static_policies={id: _policy(each, unknown) for id, each in policies.static_policies.items()},
    )


def attributes(node: Any) -> frozenset[str]:
    """Every attribute that is read anywhere below, of whatever."""
    return frozenset(each.attr for each in _below(node) if isinstance(each, pst.GetAttr))


def _policy(policy: pst.Template, unknown: frozenset[str]) -> pst.Template:
    permits = policy.effect == "permit"
    clauses: list[pst.Clause] = []
    for clause in policy.clauses:
        applies = permits if isinstance(clause, pst.When) else not permits
        clauses.append(replace(clause, expr=_relax(clause.expr, applies, unknown)))
    return replace(policy, clauses=tuple(clauses))


def _relax(expr: Expr, to: bool, unknown: frozenset[str]) -> Expr:
    if not _asks(expr, unknown):
        return expr
    match expr:
        case pst.BinaryOp("and" | "or"):
            return replace(expr, left=_relax(expr.left, to, unknown), right=_relax(expr.right, to, unknown))
        case pst.UnaryOp("not"):
            return replace(expr, arg=_relax(expr.arg, not to, unknown))
        case pst.IfThenElse():
            then, otherwise = _relax(expr.then_expr, to, unknown), _relax(expr.else_expr, to, unknown)
            if _asks(expr.cond, unknown):
                return pst.BinaryOp("or" if to else "and", then, otherwise)
            return replace(expr, then_expr=then, else_expr=otherwise)
        case _:
            return pst.BoolLit(to)


def _asks(expr: Expr, unknown: frozenset[str]) -> bool:
    if isinstance(expr, pst.GetAttr) and expr.base == pst.Var("context"):
        return expr.attr in unknown
    if isinstance(expr, pst.HasAttr) and expr.base == pst.Var("context"):
        return expr.attrs[0] in unknown
    # The context as a whole holds what is unknown too.
    return expr == pst.Var("context") or any(_asks(each, unknown) for each in _children(expr))


def _below(node: Any) -> list[Any]:
    found, waiting = list[Any](), [node]
    while waiting:
        each = waiting.pop()
        found.append(each)
        waiting += _children(each)
    return found


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    if isinstance(node, tuple):
        return list(cast("tuple[Any, ...]", node))
    if is_dataclass(node) and not isinstance(node, type):
        return [getattr(node, each.name) for each in fields(node)]
    return []
