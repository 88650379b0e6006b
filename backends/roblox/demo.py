"""The demo: a Studio without a screen connects, and a few calls plant a small wood in it."""

import asyncio
from pathlib import Path
from typing import Final

from backends.demo import Demo
from backends.roblox.headless_studio import NoStudio, headless, install, node
from gateway.contract import Json
from gateway.errors import Fault, Kind

TITLE: Final = "Roblox: the real Studio plugin in a Luau VM, on a gateway of its own, plants a wood."

_NAME: Final = "Headless Studio"
_PATIENCE: Final = 30.0
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
    await _modules()
    return {"roblox": {"module": "backends.roblox", "options": {"bridge_enabled": True}}}


async def play(demo: Demo) -> Json:
    modules, key = await _modules(), await demo.key("bridge:roblox")
    async with headless(demo.base, key, _NAME, modules):
        studio = await _connected(demo)
        demo.step("a Studio connects", studio["name"])
        wood = await _call(demo, "instance_create", parentPath="Workspace", className="Model", name="Wood")
        ground = await _call(demo, "instance_create", parentPath="Workspace.Wood", className="Part", name="Ground")
        size: Json = {"_type": "Vector3", "x": 64, "y": 1, "z": 64}
        await _call(demo, "instance_set_property", instanceId=ground, propertyName="Size", value=size)
        where = {"parentPath": "ServerScriptService", "scriptType": "ModuleScript"}
        script = await _call(demo, "script_create", **where, name="Gardener", source=_SOURCE)
        demo.step("roblox_script_execute", f"Gardener.plant({_TREES})")
        asked = {"scriptId": script, "functionName": "plant", "args": [_TREES]}
        grown = (await demo.call("roblox_script_execute", asked))["output"]["returnValue"]
        demo.note(f"returned {grown}")
        demo.step("roblox_instance_list_children", "what stands in the Studio now")
        tree = ["Wood (Model)", *await _tree(demo, wood)]
        for line in tree:
            demo.note(line)
    return {"studio": studio["name"], "returned": grown, "tree": tree}


async def _modules() -> Path:
    try:
        node()
        return await install()
    except NoStudio as exc:
        raise Fault(Kind.UNSUPPORTED, str(exc)) from exc


async def _connected(demo: Demo) -> Json:
    """The Studio, once it is there. Raises `Fault(TIMEOUT)`."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while True:
                studios = (await demo.call("roblox_list_studios", {}))["output"]["studios"]
                for studio in studios:
                    if studio["connected"]:
                        return studio
                await asyncio.sleep(_PAUSE)
    except TimeoutError as exc:
        raise Fault(Kind.TIMEOUT, f"the Studio did not connect within {_PATIENCE:g} s") from exc


async def _call(demo: Demo, tool: str, **arguments: object) -> str:
    """A write, shown by what it changed; the id of its instance."""
    answer = await demo.call(f"roblox_{tool}", arguments)
    demo.step(f"roblox_{tool}", answer["diff"]["summary"])
    return answer["output"]["instanceId"]


async def _tree(demo: Demo, parent: str, indent: str = "") -> list[str]:
    """What is below it, as a picture."""
    lines: list[str] = []
    children = (await demo.call("roblox_instance_list_children", {"parentId": parent}))["output"]["children"]
    for number, child in enumerate(children, 1):
        last = number == len(children)
        lines.append(f"{indent}{'└─' if last else '├─'} {child['name']} ({child['className']})")
        if child["childCount"]:
            lines += await _tree(demo, child["instanceId"], indent + ("   " if last else "│  "))
    return lines
