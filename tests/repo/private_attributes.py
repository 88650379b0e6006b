"""Finds the private attributes of libraries in use, by the syntax trees of `gateway/` and `backends/`."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class ClassNames:
    """The private names that a class defines, and its bases."""

    bases: list[str]
    names: set[str] = field(default_factory=set)


def used_private_attributes(root: Path = ROOT) -> dict[str, set[str]]:
    """Return attribute -> files for every private attribute that no class or module of ours defines.

    `self._x` must be defined in its class or a base class of ours; `other._x` in any class of the same file.
    """
    trees = {
        path: ast.parse(path.read_text()) for top in ("gateway", "backends") for path in (root / top).rglob("*.py")
    }
    classes: dict[str, ClassNames] = {}
    for tree in trees.values():
        for node in _classes(tree):
            names = _class_names(node)
            known = classes.setdefault(node.name, names)  # classes of one name count as one
            known.names |= names.names
            known.bases += names.bases
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        for name in _foreign(tree, classes):
            found.setdefault(name, set()).add(path.relative_to(root).as_posix())
    return found


def _classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


_PUBLIC = {"_replace", "_asdict", "_fields", "_exit"}
"""Documented names of `NamedTuple` and `os`."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def _class_names(node: ast.ClassDef) -> ClassNames:
    found = ClassNames([_last_name(base) for base in node.bases])
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.names.add(each.attr)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.names.add(each.name)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.names.add(each.id)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute):
            found.names.add(each.target.attr)
    return found


def _last_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return _last_name(base.value)
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _defines(name: str, class_name: str, classes: dict[str, ClassNames]) -> bool:
    known = classes.get(class_name)
    return known is not None and (name in known.names or any(_defines(name, base, classes) for base in known.bases))


def _foreign(tree: ast.Module, classes: dict[str, ClassNames]) -> Iterator[str]:
    in_file = {name for node in _classes(tree) for name in _class_names(node).names}
    in_file |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own: dict[ast.Attribute, str] = {
        each: node.name for node in _classes(tree) for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
            continue
        of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and node in own
        if not (_defines(node.attr, own[node], classes) if of_self else node.attr in in_file):
            yield node.attr
