"""Scene edits that affect several sections: remove, rename, reparent, duplicate, connect, group."""

from collections.abc import Callable, Sequence

from backends.godot.text.scan import apply_edits, quote, scan
from backends.godot.text.scene import ROOT, Node, Scene, removal_edit, validate_name
from gateway.errors import Fault, Kind

Edit = tuple[int, int, str]


def remove(scene: Scene, path: str) -> tuple[Scene, int]:
    """Remove a node with its descendants and their connections. Returns the scene and the number of removed nodes."""
    node = _find_non_root(scene, path, "removed")
    removed = scene.subtree(node)
    paths = {each.path for each in removed}
    edits = [removal_edit(scene.text, each.section) for each in removed]
    for section in scene.sections:
        ends = {section.string("from"), section.string("to")} if section.tag == "connection" else set[str | None]()
        if section.tag == "editable":
            ends = {section.string("path")}
        if ends & paths:
            edits.append(removal_edit(scene.text, section))
    return scene.apply_edits(edits), len(removed)


def rename(scene: Scene, path: str, name: str) -> Scene:
    """Rename a node and update the sections that refer to it."""
    node = scene.find(path)
    validate_name(name)
    if name == node.name:
        return scene
    if node.parent is None:
        return scene.apply_edits([scene.attribute_edit(node.section, "name", quote(name))])
    new_path = name if node.parent == ROOT else f"{node.parent}/{name}"
    edits = [scene.attribute_edit(node.section, "name", quote(name))]
    edits += _reference_edits(scene, _path_mapper(node.path, new_path), exclude=node)
    return scene.apply_edits(edits)


def reparent(scene: Scene, path: str, new_parent: str, index: int | None = None) -> Scene:
    """Move a node below `new_parent`, to position `index` among its siblings or to the end."""
    node, parent = _find_non_root(scene, path, "moved"), scene.find(new_parent)
    subtree = scene.subtree(node)
    if parent in subtree:
        raise Fault(Kind.INVALID_INPUT, "A node cannot be moved below itself.")
    new_path = node.name if parent.path == ROOT else f"{parent.path}/{node.name}"
    map_path = _path_mapper(node.path, new_path)
    parents = [parent.path, *(map_path(each.parent) for each in subtree[1:])]
    block = "".join(
        f"\n\n{_section_text(scene, each, parent_path)}" for each, parent_path in zip(subtree, parents, strict=True)
    )
    at = _insert_position(scene, parent, subtree, index)
    edits = [removal_edit(scene.text, each.section) for each in subtree]
    edits += _reference_edits(scene, map_path, exclude=node, nodes=False)
    return scene.apply_edits([*edits, (at, at, block)])


def duplicate(scene: Scene, path: str, new_name: str) -> tuple[Scene, str]:
    """Copy a node with its descendants as a sibling. Returns the scene and the copy's path."""
    node = _find_non_root(scene, path, "duplicated")
    assert node.parent is not None
    name = validate_name(new_name)
    new_path = name if node.parent == ROOT else f"{node.parent}/{name}"
    map_path = _path_mapper(node.path, new_path)
    subtree = scene.subtree(node)
    blocks: list[str] = []
    for each in subtree:
        block = _section_text(scene, each, node.parent if each is node else map_path(each.parent))
        blocks.append(_copy_section(scene, block, name if each is node else None))
    at = subtree[-1].section.content_end
    return scene.apply_edits([(at, at, "".join(f"\n\n{block}" for block in blocks))]), new_path


def connect(scene: Scene, source: str, signal: str, target: str, method: str, flags: int | None) -> Scene:
    """Add a signal connection between two paths. Raises `Fault(INVALID_INPUT)` if it exists."""
    wanted = {"signal": signal, "from": source, "to": target, "method": method}
    if wanted in scene.connections():
        raise Fault(Kind.INVALID_INPUT, "This connection already exists.", suggested_fix="No change is needed.")
    flags_attribute = f" flags={flags}" if flags is not None else ""
    attributes = " ".join(f"{name}={quote(value)}" for name, value in wanted.items())
    last = [each for each in scene.sections if each.tag in ("node", "connection")][-1]
    lead = "\n" if last.tag == "connection" else "\n\n"
    return scene.apply_edits(
        [(last.content_end, last.content_end, f"{lead}[connection {attributes}{flags_attribute}]")]
    )


def disconnect(scene: Scene, source: str, signal: str, target: str, method: str) -> Scene:
    """Remove a signal connection. Raises `Fault(NOT_FOUND)` if it does not exist."""
    wanted = {
        "signal": signal,
        "from": source,
        "to": target,
        "method": method,
    }
    for section in scene.sections:
        if section.tag == "connection" and all(section.string(name) == value for name, value in wanted.items()):
            return scene.apply_edits([removal_edit(scene.text, section)])
    raise Fault(Kind.NOT_FOUND, "There is no such connection in this scene.")


def set_groups(scene: Scene, path: str, groups: Sequence[str]) -> Scene:
    """Replace the groups of a node. An empty list removes the attribute."""
    node = scene.find(path)
    value = "[" + ", ".join(map(quote, groups)) + "]" if groups else None
    if value is None and node.section.attribute("groups") is None:
        return scene
    return scene.apply_edits([scene.attribute_edit(node.section, "groups", value)])


def stale_path_warnings(scene: Scene, name: str) -> list[str]:
    """Return warnings for properties with node paths that may refer to a renamed, moved or removed node."""
    return [
        f"{node.path}: {each.name} contains a node path with {name!r}, which was not updated."
        for node in scene.nodes
        for each in node.section.properties
        if "NodePath(" in each.value and name in each.value
    ]


def _find_non_root(scene: Scene, path: str, action: str) -> Node:
    node = scene.find(path)
    if node.path == ROOT:
        raise Fault(Kind.INVALID_INPUT, f"The root of a scene cannot be {action}.")
    return node


def _path_mapper(old: str, new: str) -> Callable[[str | None], str]:
    """Return a function that maps node paths after the node at `old` has moved to `new`."""

    def map_path(path: str | None) -> str:
        if path == old:
            return new
        return new + path[len(old) :] if path and path.startswith(old + "/") else path or ""

    return map_path


def _reference_edits(
    scene: Scene, map_path: Callable[[str | None], str], *, exclude: Node, nodes: bool = True
) -> list[Edit]:
    """Return the edits that update parents, connections and `editable` sections after a move."""
    names = {"connection": ("from", "to"), "editable": ("path",), **({"node": ("parent",)} if nodes else {})}
    edits: list[Edit] = []
    for section in scene.sections:
        for name in names.get(section.tag, ()):
            before = section.string(name)
            if before and section is not exclude.section and map_path(before) != before:
                edits.append(scene.attribute_edit(section, name, quote(map_path(before))))
    return edits


def _section_text(scene: Scene, node: Node, parent: str) -> str:
    """Return the text of the node's section with another parent."""
    start, end = node.section.start, node.section.content_end
    first, last, new = scene.attribute_edit(node.section, "parent", quote(parent))
    return apply_edits(scene.text[start:end], [(first - start, last - start, new)])


def _copy_section(scene: Scene, block: str, name: str | None) -> str:
    """Return the section text for a copy: without the original's `unique_id`, and renamed if `name` is set."""
    section = scan(block)[0]
    edits: list[Edit] = []
    if (old := section.attribute("unique_id")) is not None:
        edits.append((block.rindex("unique_id", 0, old.start) - 1, old.end, ""))
    if name is not None and (name_attribute := section.attribute("name")) is not None:
        edits.append((name_attribute.start, name_attribute.end, quote(name)))
    return apply_edits(block, edits)


def _insert_position(scene: Scene, parent: Node, subtree: list[Node], index: int | None) -> int:
    """Return the text offset for a child of `parent` at `index`: after its predecessor, or after all descendants."""
    siblings = [each for each in scene.children(parent.path) if each not in subtree]
    if index is None or index >= len(siblings):
        rest = [each for each in scene.subtree(parent) if each not in subtree]
        return rest[-1].section.content_end
    if index <= 0:
        return parent.section.content_end
    return scene.subtree(siblings[index - 1])[-1].section.content_end
