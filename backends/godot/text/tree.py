"""The nodes of a scene as the engine sees them: with those of instanced and inherited scenes.

A node that comes from another scene has a section here only when this scene overrides something of it. `SceneTree` adds
that section before an edit, in the form in which the engine writes it.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.godot.text.literal import from_literal
from backends.godot.text.scan import Section, format_property_name, quote, unquote
from backends.godot.text.scene import ROOT, Node, Scene
from gateway.contract import Json
from gateway.errors import Fault, Kind

_MAX_INSTANCE_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class Layer:
    """One section that describes a node, and the scene that it is in."""

    file: str
    scene: Scene
    node: Node


@dataclass(slots=True, eq=False)
class TreeNode:
    """One node. Its layers are ordered from this scene's own section to the section that defines the node."""

    name: str
    parent: "TreeNode | None"
    layers: list[Layer]
    instance: str | None = None
    """The scene that this node is the root of an instance of."""
    base: "tuple[str, Scene] | None" = None
    """A scene whose nodes below the root are still to be added."""
    unresolved: bool = False
    """Whether the instanced scene could not be read."""
    known_children: "dict[str, TreeNode]" = field(default_factory=dict[str, "TreeNode"])
    """Without those of `base`: ask `SceneTree.children`."""
    depth: int = 0

    @property
    def path(self) -> str:
        names: list[str] = []
        node = self
        while node.parent is not None:
            names.append(node.name)
            node = node.parent
        return "/".join(reversed(names)) or ROOT

    @property
    def type(self) -> str:
        """The class, from the section that defines the node. Empty when an instanced scene could not be read."""
        return next((layer.node.type for layer in self.layers if layer.node.type), "")

    @property
    def unique_id(self) -> str | None:
        return next((found for layer in self.layers if (found := layer.node.section.string("unique_id"))), None)

    def stored(self, name: str) -> tuple[str, Layer] | None:
        """Return the literal of a property and the layer that sets it."""
        for layer in self.layers:
            if (found := layer.node.section.property(name)) is not None:
                return found.value, layer
        return None

    def stored_names(self) -> list[str]:
        return list(dict.fromkeys(each.name for layer in self.layers for each in layer.node.section.properties))

    def groups(self) -> list[str]:
        return list(dict.fromkeys(group for layer in reversed(self.layers) for group in layer.scene.groups(layer.node)))

    def script(self) -> str | None:
        """Return the path of the node's script."""
        found = self.stored("script")
        return found[1].scene.resource_path(found[0]) if found else None


class SceneTree:
    """All nodes of one scene. Nodes of instanced scenes are added when they are first looked at."""

    def __init__(self, file: str, scene: Scene, library: Mapping[str, Scene]) -> None:
        self.file = file
        self.scene = scene
        self._library = library
        self.warnings: list[str] = []
        first = scene.nodes[0]
        self.root = TreeNode(first.name, None, [])
        self._describe(self.root, Layer(file, scene, first))
        self._add_nodes(self.root, file, scene)

    # ---- building ----

    def _describe(self, node: TreeNode, layer: Layer) -> None:
        """Add the section that defines a node; for an instance also the sections of the instanced scene's root."""
        node.layers.append(layer)
        instance = layer.node.section.attribute("instance")
        if instance is None:
            return
        path = layer.scene.resource_path(instance.value)
        node.instance = node.instance or path or "unknown"
        inner = self._library.get(path or "")
        if path is None or inner is None or len(node.layers) > _MAX_INSTANCE_DEPTH or node.depth > _MAX_INSTANCE_DEPTH:
            node.unresolved = True
            return
        node.base = node.base or (path, inner)
        self._describe(node, Layer(path, inner, inner.nodes[0]))

    def children(self, node: TreeNode) -> list[TreeNode]:
        self._expand(node)
        return list(node.known_children.values())

    def _expand(self, node: TreeNode) -> None:
        if node.base is None:
            return
        (file, scene), node.base = node.base, None
        # The instanced scene may itself inherit from another scene.
        path = _instance_path(scene, scene.nodes[0].section)
        inner = self._library.get(path) if path else None
        if path is not None and inner is not None:
            node.base = (path, inner)
            self._expand(node)
        self._add_nodes(node, file, scene)

    def _add_nodes(self, top: TreeNode, file: str, scene: Scene) -> None:
        for section_node in scene.nodes[1:]:
            parent = self._descend(top, section_node.parent or ROOT)
            if parent is None:
                self._orphan(file, section_node)
                continue
            self._add_node(parent, Layer(file, scene, section_node))

    def _add_node(self, parent: TreeNode, layer: Layer) -> None:
        self._expand(parent)
        section, name = layer.node.section, layer.node.name
        siblings = parent.known_children
        if (existing := siblings.get(name)) is not None:
            existing.layers.insert(0, layer)
            node = existing
        elif not _defines_node(layer.node) and not parent.unresolved:
            self._orphan(layer.file, layer.node)
            return
        else:
            node = TreeNode(name, parent, [], depth=parent.depth + 1, unresolved=not _defines_node(layer.node))
            self._describe(node, layer)
            if (placeholder := section.string("instance_placeholder")) is not None:
                node.instance = placeholder
            siblings[name] = node
        index = section.string("index")
        if index is not None and index.isdigit() and int(index) < len(siblings) - 1:
            order = [each for each in siblings if each != name]
            order.insert(int(index), name)
            parent.known_children = {each: siblings[each] for each in order}

    def _orphan(self, file: str, node: Node) -> None:
        self.warnings.append(f"{file}: {node.path} overrides a node that no longer exists; the engine ignores it.")

    def _descend(self, top: TreeNode, path: str) -> TreeNode | None:
        node = top
        for name in () if path == ROOT else path.split("/"):
            self._expand(node)
            child = node.known_children.get(name)
            if child is None:
                return None
            node = child
        return node

    # ---- queries ----

    def find(self, path: str) -> TreeNode:
        """Find a node by its path. `.`, `root` and the root's name all denote the root node.

        Raises `Fault(NOT_FOUND)`.
        """
        normalized = path.removeprefix("./").strip("/") or ROOT
        if (found := self._descend(self.root, normalized)) is not None:
            return found
        first, _, rest = normalized.partition("/")
        if first in ("root", self.root.name) and (found := self._descend(self.root, rest or ROOT)) is not None:
            return found
        raise Fault(Kind.NOT_FOUND, f"There is no node {path!r} in this scene.", details={"nodePath": path})

    def unique_name(self, parent: TreeNode, name: str) -> str:
        """Return `name`, with a number appended if a child of `parent` already has it."""
        used = {node.name for node in self.children(parent)}
        number, wanted = 2, name
        while wanted in used:
            wanted, number = f"{name}{number}", number + 1
        return wanted

    def check_free(self, parent: TreeNode, name: str) -> None:
        """Raise `Fault(INVALID_INPUT)` if a child of `parent` has the name."""
        if name in {node.name for node in self.children(parent)}:
            raise already_exists(name)

    def walk(self, start: TreeNode | None = None) -> Iterator[TreeNode]:
        """Yield a node and its descendants in the engine's order."""
        stack = [start or self.root]
        while stack:
            node = stack.pop()
            yield node
            stack += reversed(self.children(node))

    def is_own(self, node: TreeNode) -> bool:
        """Return whether this scene defines the node: it can be removed, renamed and moved here."""
        return node.layers[0].scene is self.scene and _defines_node(node.layers[0].node)

    def check_own(self, node: TreeNode, action: str) -> None:
        """Raise `Fault(UNSUPPORTED)` for a node of another scene."""
        if not self.is_own(node):
            origin = node.layers[-1].file
            raise Fault(
                Kind.UNSUPPORTED,
                f"{node.path} comes from {origin}: here its properties can be overridden, but it cannot be {action}.",
                details={"nodePath": node.path, "definedIn": origin},
                suggested_fix=f"Edit {origin} itself, or override a property here, such as visible = false.",
            )

    def owners(self, node: TreeNode) -> list[TreeNode]:
        """Return the roots of the instances that own the node, outermost first; not the scene's own root."""
        found: list[TreeNode] = []
        owner = node
        while True:
            placed = next((layer.node for layer in reversed(owner.layers) if layer.node.path != ROOT), None)
            for _ in range(placed.path.count("/") + 1 if placed else 0):
                assert owner.parent is not None
                owner = owner.parent
            if owner.parent is None:
                return list(reversed(found))
            found.append(owner)

    def connections(self) -> list[Json]:
        """Return the connections of this scene and of the scenes that it instances, those with `inherited`."""
        found = list(self.scene.connections())
        for node in self.walk():
            if node.instance is None:
                continue
            for layer in node.layers[1:] if node.layers[0].scene is self.scene else node.layers:
                if layer.node.path != ROOT:
                    continue
                for each in layer.scene.connections():
                    ends = {end: _join(node.path, str(each[end])) for end in ("from", "to")}
                    found.append({**each, **ends, "inherited": layer.file})
        return found

    def value(self, literal: str, layer: Layer, depth: int = 0) -> Any:
        """Return a stored literal as JSON, with the resources that it refers to."""

        def read(kind: str, key: str) -> Any:
            if kind == "ExtResource":
                return {"$resource": layer.scene.resource_path(f"ExtResource({quote(key)})")}
            section = layer.scene.sub_resource(key)
            if section is None or depth > 8:
                return {"$resource": "unknown", "id": key}
            props = {each.name: self.value(each.value, layer, depth + 1) for each in section.properties}
            return {"$resource": section.string("type"), "id": key, "props": props}

        return from_literal(literal, read)

    # ---- a bounded view ----

    def view(self, start: TreeNode, *, max_depth: int | None, max_nodes: int, offset: int = 0) -> tuple[Json, int, int]:
        """Return nested JSON of the first nodes, breadth first, the number shown and the number left out."""
        shown = self.entry(start)
        queue: deque[tuple[TreeNode, Json, int]] = deque([(start, shown, 1)])
        count, left_out = 1, 0
        while queue:
            node, entry, depth = queue.popleft()
            children = self.children(node)
            skip = offset if node is start else 0
            room = max_nodes - count if max_depth is None or depth < max_depth else 0
            visible = children[skip : skip + max(room, 0)]
            if len(visible) < len(children):
                entry["childCount"] = len(children)
                left_out += sum(self.size(each) for each in children[skip + len(visible) :])
            entries = [self.entry(child) for child in visible]
            if entries:
                entry["children"] = entries
            queue += [(child, each, depth + 1) for child, each in zip(visible, entries, strict=True)]
            count += len(visible)
        return shown, count, left_out

    def size(self, node: TreeNode) -> int:
        """Return the number of nodes in a subtree."""
        return sum(1 for _ in self.walk(node))

    def entry(self, node: TreeNode) -> Json:
        shown: Json = {"name": node.name, "type": node.type, "path": node.path}
        if node.instance is not None and node is not self.root:
            shown["instance"] = node.instance
        elif node.instance is not None:
            shown["inherits"] = node.instance
        if node.unresolved:
            shown["unresolved"] = True
        if not self.is_own(node):
            shown["definedIn"] = node.layers[-1].file
            shown["overridden"] = node.layers[0].scene is self.scene
        if script := node.script():
            shown["script"] = script
        if groups := node.groups():
            shown["groups"] = groups
        return shown

    # ---- edits ----

    def with_section(self, node: TreeNode) -> Scene:
        """Return the scene with a section for the node, as the engine writes an override."""
        if node.layers[0].scene is self.scene:
            return self.scene
        assert node.parent is not None
        unique_id = f" unique_id={node.unique_id}" if node.unique_id and self._has_ids() else ""
        header = f"[node name={quote(node.name)} parent={quote(node.parent.path)} index={self._index(node)}{unique_id}]"
        at = self.insert_position(node)
        return self._with_editable(self.owners(node), [(at, at, f"\n\n{header}")])

    def with_child(self, parent: TreeNode, name: str, attributes: str, values: Mapping[str, str]) -> Scene:
        """Add a node as the last child of `parent`."""
        self.check_free(parent, name)
        siblings = self.children(parent)
        foreign = parent.instance is not None or not self.is_own(parent)
        index = f' index="{len(siblings)}"' if foreign else ""
        unique_id = self.scene.new_unique_id()
        header = f"[node name={quote(name)} {attributes} parent={quote(parent.path)}{index}{unique_id}]"
        lines = "".join(f"\n{format_property_name(each)} = {value}" for each, value in values.items())
        at = self._end_of(parent)
        owners = [] if self.is_own(parent) else [*self.owners(parent)]
        return self._with_editable(owners, [(at, at, f"\n\n{header}{lines}")])

    def editable(self, node: TreeNode) -> Scene:
        """Return the scene with the instances around a node declared editable, without which the engine drops edits."""
        return self._with_editable(self.owners(node), [])

    def _with_editable(self, owners: list[TreeNode], edits: list[tuple[int, int, str]]) -> Scene:
        known = {section.string("path") for section in self.scene.sections if section.tag == "editable"}
        last = self.scene.sections[-1]
        at = last.content_end
        lead = "\n" if last.tag == "editable" else "\n\n"
        text = ""
        for owner in owners:
            if owner.path not in known:
                text += f"{lead}[editable path={quote(owner.path)}]"
                lead = "\n"
        # A node that is added at the end of the file comes before the editable sections.
        if edits and text and edits[-1][0] == at:
            start, end, block = edits.pop()
            edits.append((start, end, block + text))
        elif text:
            edits.append((at, at, text))
        return self.scene.apply_edits(edits) if edits else self.scene

    def _has_ids(self) -> bool:
        return any(node.section.attribute("unique_id") is not None for node in self.scene.nodes)

    def _index(self, node: TreeNode) -> str:
        assert node.parent is not None
        return quote(str(self.children(node.parent).index(node)))

    def _end_of(self, node: TreeNode) -> int:
        """Return the offset after the last section of the node's subtree."""
        own = self.scene.subtree_at(node.path)
        return own[-1].section.content_end if own else self.insert_position(node)

    def insert_position(self, node: TreeNode) -> int:
        """Return the offset for a new section of a node: after the sections of the nodes before it."""
        if node.parent is None:
            return self.scene.nodes[0].section.content_end
        siblings = self.children(node.parent)
        for sibling in reversed(siblings[: siblings.index(node)]):
            if before := self.scene.subtree_at(sibling.path):
                return before[-1].section.content_end
        if node.parent.layers[0].scene is self.scene:
            return node.parent.layers[0].node.section.content_end
        return self.insert_position(node.parent)


def already_exists(name: str) -> Fault:
    """Build the fault for a name that a sibling has."""
    return Fault(
        Kind.INVALID_INPUT,
        f"A node {name!r} already exists there.",
        details={"exists": name},
        suggested_fix="Choose another name.",
    )


def instance_paths(scene: Scene) -> list[str]:
    """Return the scenes that a scene's nodes are instances of."""
    found = (_instance_path(scene, node.section) for node in scene.nodes)
    return list(dict.fromkeys(path for path in found if path))


def _instance_path(scene: Scene, section: Section) -> str | None:
    attribute = section.attribute("instance")
    return scene.resource_path(attribute.value) if attribute else None


def _defines_node(node: Node) -> bool:
    """Return whether a section defines a node; other sections override one of another scene."""
    names = ("instance", "instance_placeholder")
    return node.type is not None or any(node.section.attribute(name) is not None for name in names)


def _join(base: str, path: str) -> str:
    if path == ROOT:
        return base
    return path if base == ROOT else f"{base}/{unquote(path)}"
