"""A parsed scene file with its nodes. Edits replace spans of the text and leave everything else unchanged."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.godot.text.scan import Section, apply_edits, format_property_name, quote, scan, unquote
from gateway.contract import Json
from gateway.errors import Fault, Kind

ROOT: Final = "."
_BAD_NAME: Final = re.compile(r'[.:@/"%\x00-\x1f]')
_REFERENCE: Final = re.compile(r"(Ext|Sub)Resource\(\s*(\"(?:[^\"\\]|\\.)*\"|\d+)\s*\)")


def validate_name(name: str) -> str:
    """Return the node name. Raises `Fault(INVALID_INPUT)` for a name that the engine would change."""
    if not name or _BAD_NAME.search(name):
        raise Fault(
            Kind.INVALID_INPUT, 'A node name must not be empty or contain any of . : @ / " %', details={"name": name}
        )
    return name


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a scene; `path` is relative to the root, which has the path `.`."""

    section: Section
    path: str
    name: str
    type: str | None
    """None for an instance, and for an override of a node inside an instance."""
    parent: str | None


class Scene:
    """An immutable scene text with its parsed sections. Every edit returns a new scene."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sections = scan(text)
        if not self.sections or self.sections[0].tag not in ("gd_scene", "gd_resource"):
            raise Fault(Kind.INVALID_INPUT, "The file is not a Godot scene or resource in text form.")
        self.nodes = [_node(section) for section in self.sections if section.tag == "node"]
        self._by_path = {node.path: node for node in self.nodes}
        self._children: dict[str | None, list[Node]] = {}
        for node in self.nodes:
            self._children.setdefault(node.parent, []).append(node)
        self._external = {section.string("id"): section.string("path") for section in self.external_resources()}

    # ---- queries ----

    def find(self, path: str) -> Node:
        """Find a node by its path. `.`, `root` and the root's name all denote the root node.

        Raises `Fault(NOT_FOUND)`.
        """
        normalized = path.removeprefix("./").strip("/") or ROOT
        if normalized in self._by_path:
            return self._by_path[normalized]
        first, _, rest = normalized.partition("/")
        if self.nodes and first in ("root", self.nodes[0].name) and (rest or ROOT) in self._by_path:
            return self._by_path[rest or ROOT]
        raise Fault(Kind.NOT_FOUND, f"There is no node {path!r} in this scene.", details={"nodePath": path})

    def subtree(self, node: Node) -> list[Node]:
        """Return the node and all its descendants, in file order."""
        return self.subtree_at(node.path)

    def subtree_at(self, path: str) -> list[Node]:
        """Return the nodes at and below a path that have a section here, in file order."""
        if path == ROOT:
            return list(self.nodes)
        return [each for each in self.nodes if each.path == path or each.path.startswith(path + "/")]

    def children(self, path: str) -> list[Node]:
        return self._children.get(path, [])

    def groups(self, node: Node) -> list[str]:
        found = node.section.attribute("groups")
        return [unquote(each) for each in re.findall(r'"(?:[^"\\]|\\.)*"', found.value)] if found else []

    def external_resources(self) -> list[Section]:
        return [section for section in self.sections if section.tag == "ext_resource"]

    def sub_resource(self, key: str) -> Section | None:
        return next((each for each in self.sections if each.tag == "sub_resource" and each.string("id") == key), None)

    def resource_path(self, value: str) -> str | None:
        """Return the path that an `ExtResource("…")` value refers to."""
        found = _REFERENCE.fullmatch(value.strip())
        if found is None or found[1] != "Ext":
            return None
        return self._external.get(unquote(found[2]))

    def connections(self) -> list[Json]:
        return [
            {name: section.string(name) for name in ("signal", "from", "to", "method")}
            for section in self.sections
            if section.tag == "connection"
        ]

    # ---- edits ----

    def apply_edits(self, edits: Sequence[tuple[int, int, str]]) -> "Scene":
        return Scene(apply_edits(self.text, edits))

    def with_properties(self, path: str, values: Mapping[str, str]) -> "Scene":
        """Set properties to literals. Existing ones are replaced in place; new ones are added after the last."""
        section = self._by_path[path].section
        edits: list[tuple[int, int, str]] = []
        added = ""
        for name, value in values.items():
            if (found := section.property(name)) is not None:
                edits.append((found.value_start, found.end, value))
            else:
                added += f"\n{format_property_name(name)} = {value}"
        if added:
            edits.append((section.content_end, section.content_end, added))
        return self.apply_edits(edits)

    def without_property(self, path: str, name: str) -> "Scene":
        found = self._by_path[path].section.property(name)
        if found is None:
            return self
        end = found.end + 1 if self.text[found.end : found.end + 1] == "\n" else found.end
        return self.apply_edits([(found.start, end, "")])

    def attribute_edit(self, section: Section, name: str, value: str | None) -> tuple[int, int, str]:
        """Return the edit that sets an attribute, or removes it when `value` is None."""
        found = section.attribute(name)
        if found is None:
            at = section.header_end - 1
            return (at, at, f" {name}={value}" if value is not None else "")
        if value is not None:
            return (found.start, found.end, value)
        return (self.text.rindex(name, section.start, found.start) - 1, found.end, "")

    def new_unique_id(self) -> str:
        """Return a `unique_id` attribute that no node has; empty in a scene whose nodes have none."""
        used = {node.section.string("unique_id") for node in self.nodes}
        if used <= {None}:
            return ""
        number = secrets.randbelow(2**31 - 1) + 1
        return self.new_unique_id() if str(number) in used else f" unique_id={number}"

    def with_external(self, kind: str, path: str, uid: str | None = None) -> tuple["Scene", str]:
        """Return the scene and the `ExtResource("…")` value for that file. An existing entry is reused."""
        for section in self.external_resources():
            if section.string("path") == path:
                return self, f"ExtResource({quote(section.string('id') or '')})"
        used = {section.string("id") for section in self.external_resources()}
        number = len(used) + 1
        while (resource_id := f"{number}_{secrets.token_hex(3)[:5]}") in used:
            number += 1
        uid_attribute = f" uid={quote(uid)}" if uid else ""
        line = f"[ext_resource type={quote(kind)}{uid_attribute} path={quote(path)} id={quote(resource_id)}]"
        last = self.external_resources()
        at, lead = (last[-1].header_end, "\n") if last else (self.sections[0].content_end, "\n\n")
        return self.apply_edits([(at, at, lead + line)]), f"ExtResource({quote(resource_id)})"

    def with_sub_resource(self, kind: str, values: Mapping[str, str]) -> tuple["Scene", str]:
        """Add a sub-resource. Returns the scene and the `SubResource("…")` value for it."""
        used = {section.string("id") for section in self.sections if section.tag == "sub_resource"}
        while (resource_id := f"{kind}_{secrets.token_hex(3)[:5]}") in used:
            pass
        lines = "".join(f"\n{format_property_name(name)} = {value}" for name, value in values.items())
        before = [each for each in self.sections if each.tag in ("ext_resource", "sub_resource")]
        at = (before[-1] if before else self.sections[0]).content_end
        block = f"\n\n[sub_resource type={quote(kind)} id={quote(resource_id)}]{lines}"
        return self.apply_edits([(at, at, block)]), f"SubResource({quote(resource_id)})"


def _node(section: Section) -> Node:
    name, parent = section.string("name") or "", section.string("parent")
    child_path = name if parent == ROOT else f"{parent}/{name}"
    path = ROOT if parent is None else child_path
    return Node(section, path, name, section.string("type"), parent)


def removal_edit(text: str, section: Section) -> tuple[int, int, str]:
    """Return the edit that removes a section and the blank lines before it; a comment above it stays."""
    start = section.start
    while start and text[start - 1] in " \t\r\n":
        start -= 1
    return (start, section.content_end, "")
