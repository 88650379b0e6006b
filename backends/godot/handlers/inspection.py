"""Looking into scenes and classes without changing or running anything."""

from typing import Any

from backends.godot.envelope import Outcome
from backends.godot.handlers.scene_editing import load
from backends.godot.text.scene import Node, Scene
from backends.godot.tool import Job
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def inspect(job: Job) -> Outcome:
    """A class, or what a scene stores of a node."""
    if job.get("className"):
        return await describe(job)
    place = job.scene()
    scene = await load(job, place)
    node = scene.find(job.text("nodePath", "."))
    stored: dict[str, Any] = {each.name: each.value for each in node.section.properties}
    details: Json = {"nodePath": node.path, "class": node.type, "properties": stored, "groups": scene.groups(node)}
    wanted = job.get("property")
    if wanted is not None:
        if wanted not in stored:
            raise Fault(Kind.NOT_FOUND, f"The scene stores no {wanted} for {node.path}: it has its default.")
        details = {"nodePath": node.path, "property": wanted, "value": stored[wanted]}
    return Outcome(f"{node.path} stores {len(stored)} properties.", details)


async def describe(job: Job) -> Outcome:
    asked = {"class": job.text("className"), "own": False}
    done = await job.desk.ask(job.caller, job.project, "describe", asked)
    return Outcome(f"{done.value['class']} is a {done.value['parent'] or 'class of its own'}.", done.value)


async def query(job: Job) -> Outcome:
    """Nodes by name, part of a name, class or group."""
    scene = await load(job, job.scene())
    limit = int(job.get("limit", 100))
    found = [node for node in scene.nodes if _matches(job, scene, node)]
    shown = [{"path": node.path, "name": node.name, "type": node.type or ""} for node in found[:limit]]
    return Outcome(f"{len(found)} nodes match.", {"nodes": shown, "total": len(found)})


def _matches(job: Job, scene: Scene, node: Node) -> bool:
    facts: dict[str, bool] = {
        "name": node.name == job.get("name"),
        "nameContains": job.text("nameContains").lower() in node.name.lower(),
        "className": node.type == job.get("className"),
        "group": job.get("group") in scene.groups(node),
    }
    asked = all(held for name, held in facts.items() if job.get(name) is not None)
    return asked and (job.get("includeRoot", True) or node.path != ".")


async def connections(job: Job) -> Outcome:
    scene = await load(job, job.scene())
    source = scene.find(job.text("sourceNodePath", ".")).path
    found = [
        each for each in scene.connections() if each["from"] == source and job.get("signal") in (None, each["signal"])
    ]
    return Outcome(f"{source} has {len(found)} connections.", {"connections": found})
