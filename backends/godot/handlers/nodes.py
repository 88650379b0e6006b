"""Nodes of a scene: add, edit, remove, rename, move, duplicate, instance, connect, group, script."""

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import Typed, load, new_node, save, settle, typed
from backends.godot.paths import Place
from backends.godot.text import node_edits
from backends.godot.text.scene import Scene, checked_name
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind


def _properties(job: Job) -> Json:
    return {**job.get("props", {}), **job.get("properties", {})}


async def tree(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    shown = scene.tree(job.get("maxDepth"))
    return Outcome(
        f"{place.res} has {len(scene.nodes)} nodes.",
        {"scenePath": place.res, "nodeCount": len(scene.nodes), "tree": shown, "picture": "\n".join(_drawn(shown))},
    )


def _drawn(node: Json, lead: str = "", first: str = "") -> list[str]:
    lines = [f"{first}{node['name']} ({node['type'] or node.get('instance') or 'inherited'})"]
    below: list[Json] = node.get("children", [])
    for index, child in enumerate(below):
        last = index == len(below) - 1
        lines += _drawn(child, lead + ("   " if last else "│  "), lead + ("└─ " if last else "├─ "))
    return lines


async def add(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    parent = scene.find(job.text("parentNodePath", ".")).path
    name = checked_name(job.text("nodeName"))
    if job.get("ensureUniqueName", False):
        name = scene.unique_name(parent, name)
    made = await typed(job, _properties(job), kind=job.text("nodeType"))
    after, path, expected = new_node(scene, parent, name, made)
    details = {"nodePath": path, "nodeType": job.text("nodeType"), "nodeName": name}
    return await save(job, place, scene, after, {path: expected}, f"Added {name} ({made.type}).", details)


async def add_many(job: Job) -> Outcome:
    """All of them in one change of the file."""
    place = job.scene()
    scene = after = await load(job, place)
    expected: dict[str, dict[str, str]] = {}
    failures: list[Json] = []
    for index, item in enumerate(job.get("items")):
        one = job.with_(**{"parentNodePath": None, "props": None, "properties": None, **item})
        try:
            parent = after.find(one.text("parentNodePath", ".")).path
            name = after.unique_name(parent, checked_name(one.text("nodeName")))
            made = await typed(one, _properties(one), kind=one.text("nodeType"))
            after, path, values = new_node(after, parent, name, made)
        except Fault as fault:
            if job.get("stopOnError", True):
                raise
            failures.append({"index": index, "message": fault.message})
            continue
        expected[path] = values
        await job.report(index + 1, len(job.get("items")), name)
    details = {"nodePaths": list(expected), "failures": failures}
    return await save(job, place, scene, after, expected, f"Added {len(expected)} nodes.", details)


async def edit(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    properties = _properties(job)
    if not properties:
        raise Fault(Kind.INVALID_INPUT, "There are no properties to set.")
    made = await typed(job, properties, kind=node.type or "", at=(place, node.path))
    after, literals, expected = settle(scene, made.values)
    after = after.with_properties(node.path, literals)
    details = {"nodePath": node.path, "properties": sorted(properties)}
    return await save(job, place, scene, after, {node.path: expected}, f"Set {len(properties)} properties.", details)


async def set_property(job: Job) -> Outcome:
    return await edit(job.with_(properties={job.text("property"): job.arguments.get("value")}, props=None))


async def add_resource(job: Job) -> Outcome:
    """A new resource of a class, or one from a file, as a property's value."""
    named = job.get("resourcePath") or job.text("resourceType")
    if job.get("resourcePath"):
        named = job.place("resourcePath").res
    value = {"$resource": named, "props": job.get("props", {})}
    return await edit(job.with_(properties={job.text("property"): value}, props=None))


async def remove(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    after, count = node_edits.remove(scene, node.path)
    warnings = tuple(node_edits.pointing_at(after, node.name))
    details = {"nodePath": node.path, "removed": count}
    return await save(job, place, scene, after, {}, f"Removed {node.path}.", details, warnings)


async def rename(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    node, name = scene.find(job.text("nodePath")), job.text("newName")
    after = node_edits.rename(scene, node.path, name)
    path = "." if node.parent is None else name if node.parent == "." else f"{node.parent}/{name}"
    warnings = tuple(node_edits.pointing_at(after, node.name))
    details = {"nodePath": path, "oldPath": node.path}
    return await save(job, place, scene, after, {path: {}}, f"Renamed {node.name} to {name}.", details, warnings)


async def move(job: Job) -> Outcome:
    """Below another parent, or to another place among its siblings."""
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    target = scene.find(job.text("newParentPath", node.parent or "."))
    after = node_edits.reparent(scene, node.path, target.path, job.get("index"))
    path = node.name if target.path == "." else f"{target.path}/{node.name}"
    warnings = tuple(node_edits.pointing_at(after, node.name)) if path != node.path else ()
    details = {"nodePath": path, "oldPath": node.path}
    return await save(job, place, scene, after, {path: {}}, f"Moved {node.path} to {path}.", details, warnings)


async def duplicate(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    after, path = node_edits.duplicate(scene, job.text("nodePath"), job.get("newName"))
    return await save(job, place, scene, after, {path: {}}, f"Duplicated it as {path}.", {"nodePath": path})


async def instance(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    source = job.place("instancePath") if job.get("instancePath") else job.place("instanceScenePath")
    if source == place:
        raise Fault(Kind.INVALID_INPUT, "A scene cannot hold an instance of itself.")
    inner = await load(job, source)
    parent = scene.find(job.text("parentNodePath", ".")).path
    wanted = job.get("instanceName") or job.get("name") or scene.unique_name(parent, inner.nodes[0].name)
    name = checked_name(str(wanted))
    after, reference = scene.with_external("PackedScene", source.res, inner.sections[0].string("uid"))
    made = await typed(job, _properties(job), kind=inner.nodes[0].type or "Node") if _properties(job) else Typed("")
    after, literals, expected = settle(after, made.values)
    after = after.with_node(parent, name, f"instance={reference}", literals)
    path = name if parent == "." else f"{parent}/{name}"
    details = {"nodePath": path, "instancePath": source.res}
    return await save(job, place, scene, after, {path: expected}, f"Instanced {source.res} as {path}.", details)


async def connect(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    ends = (job.text("fromNodePath"), job.text("signal"), job.text("toNodePath"), job.text("method"))
    await _known_signal(job, place, scene, ends[0], ends[1])
    after = node_edits.connect(scene, *ends, job.get("flags"))
    return await save(job, place, scene, after, {}, f"Connected {ends[1]} to {ends[3]}.", {"connection": list(ends)})


async def _known_signal(job: Job, place: Place, scene: Scene, path: str, signal: str) -> None:
    """A node without a script has the signals of its class only."""
    node = scene.find(path)
    if not job.desk.engine.present or node.type is None or node.section.property("script") is not None:
        return
    known = await job.desk.ask(job.caller, job.project, "describe", {"class": node.type})
    if signal not in known.value["signals"]:
        raise Fault(Kind.NOT_FOUND, f"{node.type} has no signal {signal}.", details={"signals": known.value["signals"]})


async def disconnect(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    ends = (job.text("fromNodePath"), job.text("signal"), job.text("toNodePath"), job.text("method"))
    after = node_edits.disconnect(scene, *ends)
    return await save(job, place, scene, after, {}, f"Disconnected {ends[1]}.", {"connection": list(ends)})


async def groups(job: Job) -> Outcome:
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath"))
    now = scene.groups(node)
    asked: list[str] = job.get("groups") or ([job.text("groupName")] if job.get("groupName") else [])
    match job.text("action").removeprefix("groups."):
        case "add":
            wanted = [*now, *(each for each in dict.fromkeys(asked) if each not in now)]
        case "remove":
            wanted = [each for each in now if each not in asked]
        case _:
            return Outcome(f"{node.path} is in {len(now)} groups.", {"nodePath": node.path, "groups": now})
    if not asked:
        raise Fault(Kind.INVALID_INPUT, "groups is needed to add or remove.")
    after = node_edits.regroup(scene, node.path, wanted)
    details = {"nodePath": node.path, "groups": wanted}
    return await save(job, place, scene, after, {}, f"{node.path} is in {len(wanted)} groups.", details)


async def attach_components(job: Job) -> Outcome:
    """Each component is a node below this one: a class, or a scene to instance."""
    items: list[Json] = []
    for each in job.get("components"):
        given: Json = {"nodeType": each} if isinstance(each, str) else each
        name = given.get("nodeName") or given.get("name") or given.get("nodeType")
        items.append({**given, "nodeName": name, "parentNodePath": job.text("nodePath")})
    return await add_many(job.with_(items=items))
