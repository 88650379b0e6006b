"""A scene file as nodes, and the edits that leave everything else alone."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.godot.text.scan import Section, apply, property_name, quoted, scan, unquoted
from gateway.contract import Json
from gateway.errors import Fault, Kind

ROOT: Final = "."
_BAD_NAME: Final = re.compile(r'[.:@/"%\x00-\x1f]')
_REFERENCE: Final = re.compile(r"(Ext|Sub)Resource\(\s*(\"(?:[^\"\\]|\\.)*\")\s*\)")


def checked_name(name: str) -> str:
    if not name or _BAD_NAME.search(name):
        raise Fault(
            Kind.INVALID_INPUT, "A node's name is not empty and has none of . : @ / \" % in it.", details={"name": name}
        )
    return name


@dataclass(frozen=True, slots=True)
class Node:
    section: Section
    path: str
    name: str
    type: str | None
    """None for an instance, or for an override of a node that an instance brings."""
    parent: str | None


class Scene:
    """One version of the text. Edits answer a new one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sections = scan(text)
        if not self.sections or self.sections[0].tag not in ("gd_scene", "gd_resource"):
            raise Fault(Kind.INVALID_INPUT, "The file is not a Godot scene or resource in text form.")
        self.nodes = [_node(section) for section in self.sections if section.tag == "node"]
        self._by_path = {node.path: node for node in self.nodes}

    # ---- finding ----

    def find(self, given: str) -> Node:
        """By path from the root; `root` and the root's own name may stand for the root."""
        path = given.removeprefix("./").strip("/") or ROOT
        if path in self._by_path:
            return self._by_path[path]
        first, _, rest = path.partition("/")
        if self.nodes and first in ("root", self.nodes[0].name) and (rest or ROOT) in self._by_path:
            return self._by_path[rest or ROOT]
        raise Fault(Kind.NOT_FOUND, f"There is no node {given!r} in this scene.", details={"nodePath": given})

    def below(self, node: Node) -> list[Node]:
        """The node and all under it."""
        if node.path == ROOT:
            return list(self.nodes)
        return [each for each in self.nodes if each.path == node.path or each.path.startswith(node.path + "/")]

    def children(self, path: str) -> list[Node]:
        return [node for node in self.nodes if node.parent == path]

    def unique_name(self, parent: str, name: str) -> str:
        taken = {node.name for node in self.children(parent)}
        number, wanted = 2, name
        while wanted in taken:
            wanted, number = f"{name}{number}", number + 1
        return wanted

    def tree(self, max_depth: int | None = None, path: str = ROOT, depth: int = 1) -> Json:
        node = self._by_path[path]
        shown: Json = {"name": node.name, "type": node.type or "", "path": path, **self._extras(node)}
        below = self.children(path)
        if below and (max_depth is None or depth < max_depth):
            shown["children"] = [self.tree(max_depth, child.path, depth + 1) for child in below]
        elif below:
            shown["childCount"] = len(below)
        return shown

    def _extras(self, node: Node) -> Json:
        extras: Json = {}
        if (instance := node.section.attribute("instance")) is not None:
            extras["instance"] = self.resource_path(instance.value)
        if (script := node.section.property("script")) is not None:
            extras["script"] = self.resource_path(script.value)
        if groups := self.groups(node):
            extras["groups"] = groups
        return extras

    def groups(self, node: Node) -> list[str]:
        found = node.section.attribute("groups")
        return [unquoted(each) for each in re.findall(r'"(?:[^"\\]|\\.)*"', found.value)] if found else []

    def external(self) -> list[Section]:
        return [section for section in self.sections if section.tag == "ext_resource"]

    def resource_path(self, value: str) -> str | None:
        """Where an `ExtResource("…")` leads."""
        found = _REFERENCE.fullmatch(value.strip())
        if found is None or found[1] != "Ext":
            return None
        wanted = unquoted(found[2])
        return next((each.string("path") for each in self.external() if each.string("id") == wanted), None)

    def connections(self) -> list[Json]:
        return [
            {name: section.string(name) for name in ("signal", "from", "to", "method")}
            for section in self.sections
            if section.tag == "connection"
        ]

    # ---- changing ----

    def edited(self, edits: Sequence[tuple[int, int, str]]) -> "Scene":
        return Scene(apply(self.text, edits))

    def with_properties(self, path: str, values: Mapping[str, str]) -> "Scene":
        """Properties set to these literals, in place where they stand, else behind the last."""
        section = self._by_path[path].section
        edits: list[tuple[int, int, str]] = []
        added = ""
        for name, value in values.items():
            if (found := section.property(name)) is not None:
                edits.append((found.value_start, found.end, value))
            else:
                added += f"\n{property_name(name)} = {value}"
        if added:
            edits.append((section.content_end, section.content_end, added))
        return self.edited(edits)

    def without_property(self, path: str, name: str) -> "Scene":
        found = self._by_path[path].section.property(name)
        if found is None:
            return self
        end = found.end + 1 if self.text[found.end : found.end + 1] == "\n" else found.end
        return self.edited([(found.start, end, "")])

    def with_attribute(self, section: Section, name: str, value: str | None) -> tuple[int, int, str]:
        """The edit that sets an attribute, or with None takes it away."""
        found = section.attribute(name)
        if found is None:
            at = section.header_end - 1
            return (at, at, f" {name}={value}" if value is not None else "")
        if value is not None:
            return (found.start, found.end, value)
        return (self.text.rindex(name, section.start, found.start) - 1, found.end, "")

    def with_node(self, parent: str, name: str, attributes: str, values: Mapping[str, str]) -> "Scene":
        """A new last child of `parent`; `attributes` are its type or instance."""
        if name in {node.name for node in self.children(parent)}:
            raise Fault(Kind.DENIED, f"There is a node {name!r} there already.", suggested_fix="Choose another name.")
        header = f"[node name={quoted(name)} {attributes} parent={quoted(parent)}{self._unique_id()}]"
        lines = "".join(f"\n{property_name(each)} = {value}" for each, value in values.items())
        at = self.below(self._by_path[parent])[-1].section.content_end
        return self.edited([(at, at, f"\n\n{header}{lines}")])

    def _unique_id(self) -> str:
        taken = {node.section.string("unique_id") for node in self.nodes}
        if taken <= {None}:
            return ""
        number = secrets.randbelow(2**31 - 1) + 1
        return self._unique_id() if str(number) in taken else f" unique_id={number}"

    def with_external(self, kind: str, path: str, uid: str | None = None) -> tuple["Scene", str]:
        """The scene, and the `ExtResource("…")` for that file; one that stands there already is used."""
        for section in self.external():
            if section.string("path") == path:
                return self, f"ExtResource({quoted(section.string('id') or '')})"
        taken = {section.string("id") for section in self.external()}
        number = len(taken) + 1
        while (made := f"{number}_{secrets.token_hex(3)[:5]}") in taken:
            number += 1
        known = f" uid={quoted(uid)}" if uid else ""
        line = f"[ext_resource type={quoted(kind)}{known} path={quoted(path)} id={quoted(made)}]"
        last = self.external()
        at, lead = (last[-1].header_end, "\n") if last else (self.sections[0].content_end, "\n\n")
        return self.edited([(at, at, lead + line)]), f"ExtResource({quoted(made)})"

    def with_sub_resource(self, kind: str, values: Mapping[str, str]) -> tuple["Scene", str]:
        taken = {section.string("id") for section in self.sections if section.tag == "sub_resource"}
        while (made := f"{kind}_{secrets.token_hex(3)[:5]}") in taken:
            pass
        lines = "".join(f"\n{property_name(name)} = {value}" for name, value in values.items())
        before = [each for each in self.sections if each.tag in ("ext_resource", "sub_resource")]
        at = (before[-1] if before else self.sections[0]).content_end
        block = f"\n\n[sub_resource type={quoted(kind)} id={quoted(made)}]{lines}"
        return self.edited([(at, at, block)]), f"SubResource({quoted(made)})"


def _node(section: Section) -> Node:
    name, parent = section.string("name") or "", section.string("parent")
    below = name if parent == ROOT else f"{parent}/{name}"
    path = ROOT if parent is None else below
    return Node(section, path, name, section.string("type"), parent)


def cut(text: str, section: Section) -> tuple[int, int, str]:
    """The edit that takes a section away with the blank lines before it; a comment above it stays."""
    start = section.start
    while start and text[start - 1] in " \t\r\n":
        start -= 1
    return (start, section.content_end, "")
