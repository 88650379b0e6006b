"""Edits of a scene that touch many sections: remove, rename, reparent, duplicate, connect, group."""

from collections.abc import Callable, Sequence

from backends.godot.text.scan import apply, quoted, scan
from backends.godot.text.scene import ROOT, Node, Scene, checked_name, cut
from gateway.errors import Fault, Kind

Edit = tuple[int, int, str]


def remove(scene: Scene, given: str) -> tuple[Scene, int]:
    """The scene without the node, all under it and their connections; and how many nodes went."""
    node = _not_root(scene, given, "removed")
    gone = scene.below(node)
    paths = {each.path for each in gone}
    edits = [cut(scene.text, each.section) for each in gone]
    for section in scene.sections:
        ends = {section.string("from"), section.string("to")} if section.tag == "connection" else set[str | None]()
        if section.tag == "editable":
            ends = {section.string("path")}
        if ends & paths:
            edits.append(cut(scene.text, section))
    return scene.edited(edits), len(gone)


def rename(scene: Scene, given: str, name: str) -> Scene:
    node = scene.find(given)
    checked_name(name)
    if name == node.name:
        return scene
    if node.parent is None:
        return scene.edited([scene.with_attribute(node.section, "name", quoted(name))])
    if name in {each.name for each in scene.children(node.parent)}:
        raise Fault(Kind.DENIED, f"There is a node {name!r} there already.", suggested_fix="Choose another name.")
    path = name if node.parent == ROOT else f"{node.parent}/{name}"
    edits = [scene.with_attribute(node.section, "name", quoted(name))]
    edits += _repointed(scene, _moved(node.path, path), exclude=node)
    return scene.edited(edits)


def reparent(scene: Scene, given: str, new_parent: str, index: int | None = None) -> Scene:
    """Below `new_parent`, as its last child unless `index` says which."""
    node, parent = _not_root(scene, given, "moved"), scene.find(new_parent)
    family = scene.below(node)
    if parent in family:
        raise Fault(Kind.INVALID_INPUT, "A node cannot go below itself.")
    if parent.path != node.parent and node.name in {each.name for each in scene.children(parent.path)}:
        raise Fault(Kind.DENIED, f"There is a node {node.name!r} there already.", suggested_fix="Rename one first.")
    path = node.name if parent.path == ROOT else f"{parent.path}/{node.name}"
    moved = _moved(node.path, path)
    parents = [parent.path, *(moved(each.parent) for each in family[1:])]
    block = "".join(f"\n\n{_block(scene, each, above)}" for each, above in zip(family, parents, strict=True))
    at = _behind(scene, parent, family, index)
    edits = [cut(scene.text, each.section) for each in family]
    edits += _repointed(scene, moved, exclude=node, nodes=False)
    return scene.edited([*edits, (at, at, block)])


def duplicate(scene: Scene, given: str, new_name: str | None) -> tuple[Scene, str]:
    """The scene with a copy beside the node, and the copy's path."""
    node = _not_root(scene, given, "duplicated")
    assert node.parent is not None
    name = checked_name(new_name) if new_name else scene.unique_name(node.parent, node.name)
    if name in {each.name for each in scene.children(node.parent)}:
        raise Fault(Kind.DENIED, f"There is a node {name!r} there already.", suggested_fix="Choose another name.")
    path = name if node.parent == ROOT else f"{node.parent}/{name}"
    moved = _moved(node.path, path)
    family = scene.below(node)
    blocks: list[str] = []
    for each in family:
        block = _block(scene, each, node.parent if each is node else moved(each.parent))
        blocks.append(_as_copy(scene, block, name if each is node else None))
    at = family[-1].section.content_end
    return scene.edited([(at, at, "".join(f"\n\n{block}" for block in blocks))]), path


def connect(scene: Scene, source: str, signal: str, target: str, method: str, flags: int | None) -> Scene:
    start, end = scene.find(source).path, scene.find(target).path
    wanted = {"signal": signal, "from": start, "to": end, "method": method}
    if wanted in scene.connections():
        raise Fault(Kind.DENIED, "That connection is there already.", suggested_fix="Nothing needs to be done.")
    more = f" flags={flags}" if flags is not None else ""
    words = " ".join(f"{name}={quoted(value)}" for name, value in wanted.items())
    last = [each for each in scene.sections if each.tag in ("node", "connection")][-1]
    lead = "\n" if last.tag == "connection" else "\n\n"
    return scene.edited([(last.content_end, last.content_end, f"{lead}[connection {words}{more}]")])


def disconnect(scene: Scene, source: str, signal: str, target: str, method: str) -> Scene:
    wanted = {
        "signal": signal,
        "from": scene.find(source).path,
        "to": scene.find(target).path,
        "method": method,
    }
    for section in scene.sections:
        if section.tag == "connection" and all(section.string(name) == value for name, value in wanted.items()):
            return scene.edited([cut(scene.text, section)])
    raise Fault(Kind.NOT_FOUND, "There is no such connection in this scene.")


def regroup(scene: Scene, given: str, groups: Sequence[str]) -> Scene:
    node = scene.find(given)
    value = "[" + ", ".join(map(quoted, groups)) + "]" if groups else None
    if value is None and node.section.attribute("groups") is None:
        return scene
    return scene.edited([scene.with_attribute(node.section, "groups", value)])


def pointing_at(scene: Scene, name: str) -> list[str]:
    """Warnings for properties whose node paths may have named a node of that name."""
    return [
        f"{node.path}: {each.name} holds a node path with {name!r} in it, which was not changed."
        for node in scene.nodes
        for each in node.section.properties
        if "NodePath(" in each.value and name in each.value
    ]


def _not_root(scene: Scene, given: str, done: str) -> Node:
    node = scene.find(given)
    if node.path == ROOT:
        raise Fault(Kind.INVALID_INPUT, f"The root of a scene cannot be {done}.")
    return node


def _moved(old: str, new: str) -> Callable[[str | None], str]:
    """How a path changes when what was at `old` is now at `new`."""

    def changed(path: str | None) -> str:
        if path == old:
            return new
        return new + path[len(old) :] if path and path.startswith(old + "/") else path or ""

    return changed


def _repointed(scene: Scene, moved: Callable[[str | None], str], *, exclude: Node, nodes: bool = True) -> list[Edit]:
    """Parents, connections and editable marks that name a node which moved."""
    names = {"connection": ("from", "to"), "editable": ("path",), **({"node": ("parent",)} if nodes else {})}
    edits: list[Edit] = []
    for section in scene.sections:
        for name in names.get(section.tag, ()):
            before = section.string(name)
            if before and section is not exclude.section and moved(before) != before:
                edits.append(scene.with_attribute(section, name, quoted(moved(before))))
    return edits


def _block(scene: Scene, node: Node, parent: str) -> str:
    """The node's section as text, below another parent."""
    start, end = node.section.start, node.section.content_end
    first, last, new = scene.with_attribute(node.section, "parent", quoted(parent))
    return apply(scene.text[start:end], [(first - start, last - start, new)])


def _as_copy(scene: Scene, block: str, name: str | None) -> str:
    """Another name where one is given, and no id that the original has."""
    section = scan(block)[0]
    edits: list[Edit] = []
    if (old := section.attribute("unique_id")) is not None:
        edits.append((block.rindex("unique_id", 0, old.start) - 1, old.end, ""))
    if name is not None and (held := section.attribute("name")) is not None:
        edits.append((held.start, held.end, quoted(name)))
    return apply(block, edits)


def _behind(scene: Scene, parent: Node, family: list[Node], index: int | None) -> int:
    """Where a child of `parent` goes: behind the one before it, or behind all that is below the parent."""
    siblings = [each for each in scene.children(parent.path) if each not in family]
    if index is None or index >= len(siblings):
        rest = [each for each in scene.below(parent) if each not in family]
        return rest[-1].section.content_end
    if index <= 0:
        return parent.section.content_end
    return scene.below(siblings[index - 1])[-1].section.content_end
