"""The packaged plugin file, read with the rbx-dom library."""

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from backends.roblox.headless_studio import node
from backends.roblox.package import SOURCES, build_rbxmx

_READ = """
const { readXml } = require(process.argv[1] + '/rbx-dom')
const dom = readXml(require('fs').readFileSync(process.argv[2]))
const all = dom.descendants().map((each) => [each.className, each.name, each.properties.Source?.String])
console.log(JSON.stringify(all))
"""


async def test_package_contains_the_plugin_script_and_all_modules(tmp_path: Path, modules: Any) -> None:
    made = tmp_path / "Gatehouse.rbxmx"
    made.write_text(build_rbxmx())
    reading = await asyncio.create_subprocess_exec(node(), "-e", _READ, str(modules), str(made), stdout=PIPE)
    out, _ = await reading.communicate()
    found = {name: (kind, source) for kind, name, source in json.loads(out) if source is not None}
    files = {path.stem: path.read_text() for path in SOURCES.glob("*.luau")}
    assert found.pop("Gatehouse") == ("Script", files.pop("init.server"))
    assert found == {name: ("ModuleScript", source) for name, source in files.items()}
