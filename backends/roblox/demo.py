"""The demo of the roblox backend: a headless Studio connects, and a few calls build a small forest in it."""

import asyncio
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.roblox.headless_studio import StudioUnavailable, install, node, run_headless_studio
from gateway.contract import Json
from gateway.errors import Fault, Kind

TITLE: Final = "Roblox: the real Studio plugin runs in a Luau VM and builds a small forest."

_NAME: Final = "Headless Studio"
_CONNECT_TIMEOUT: Final = 30.0
_PAUSE: Final = 0.05
_TREES: Final = 3
_SOURCE: Final = """\
local Gardener = {}

function Gardener.plant(trees: number): number
	for number = 1, trees do
		local trunk = Instance.new("Part")
		trunk.Name = "Tree" .. number
		trunk.Size = Vector3.new(1, 8, 1)
		trunk.Position = Vector3.new(math.cos(number) * 20, 4, math.sin(number) * 20)
		local crown = Instance.new("Part")
		crown.Name = "Crown"
		crown.Shape = Enum.PartType.Ball
		crown.Parent = trunk
		trunk.Parent = workspace.Wood
	end
	return #workspace.Wood:GetChildren()
end

return Gardener
"""


async def prepare(folder: Path) -> Json:
    await _install_modules()
    return {"roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}}}


async def play(demo: Demo) -> Json:
    modules, key = await _install_modules(), await demo.key("bridge:roblox")
    async with run_headless_studio(demo.base, key, _NAME, modules):
        studio = await _wait_for_studio(demo)
        demo.step("a Studio connects", studio["name"])
        wood = await _call(demo, "instance_create", parentPath="Workspace", className="Model", name="Wood")
        ground = await _call(demo, "instance_create", parentPath="Workspace.Wood", className="Part", name="Ground")
        size: Json = {"_type": "Vector3", "x": 64, "y": 1, "z": 64}
        await _call(demo, "instance_set_property", instanceId=ground, propertyName="Size", value=size)
        where = {"parentPath": "ServerScriptService", "scriptType": "ModuleScript"}
        script = await _call(demo, "script_create", **where, name="Gardener", source=_SOURCE)
        demo.step("roblox_script_execute", f"Gardener.plant({_TREES})")
        arguments = {"scriptId": script, "functionName": "plant", "args": [_TREES]}
        returned = (await demo.call("roblox_script_execute", arguments))["output"]["returnValue"]
        demo.note(f"returned {returned}")
        demo.step("roblox_instance_list_children", "the instances in the Studio")
        tree = ["Wood (Model)", *await _tree(demo, wood)]
        for line in tree:
            demo.note(line)
    return {"studio": studio["name"], "returned": returned, "tree": tree}


async def _install_modules() -> Path:
    try:
        node()
        return await install()
    except StudioUnavailable as exc:
        raise Fault(Kind.UNSUPPORTED, str(exc)) from exc


async def _wait_for_studio(demo: Demo) -> Json:
    """Wait until a Studio is connected and return it. Raises `Fault(TIMEOUT)`."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            while True:
                studios = (await demo.call("roblox_list_studios", {}))["output"]["studios"]
                for studio in studios:
                    if studio["connected"]:
                        return studio
                await asyncio.sleep(_PAUSE)
    except TimeoutError as exc:
        raise Fault(Kind.TIMEOUT, f"the Studio did not connect within {_CONNECT_TIMEOUT:g} s") from exc


async def _call(demo: Demo, tool: str, **arguments: object) -> str:
    """Call a write tool, print its diff, and return the id of its instance."""
    answer = await demo.call(f"roblox_{tool}", arguments)
    demo.step(f"roblox_{tool}", answer["diff"]["summary"])
    return answer["output"]["instanceId"]


async def _tree(demo: Demo, parent: str, indent: str = "") -> list[str]:
    """Return the descendants of `parent` as the lines of a tree."""
    lines: list[str] = []
    children = (await demo.call("roblox_instance_list_children", {"parentId": parent}))["output"]["children"]
    for number, child in enumerate(children, 1):
        last = number == len(children)
        lines.append(f"{indent}{'└─' if last else '├─'} {child['name']} ({child['className']})")
        if child["childCount"]:
            lines += await _tree(demo, child["instanceId"], indent + ("   " if last else "│  "))
    return lines
