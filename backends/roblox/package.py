"""Packages the plugin as one file for Studio's plugin folder: `python -m backends.roblox.package Gatehouse.rbxmx`."""

import sys
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

SOURCES: Final = Path(__file__).parent / "plugin" / "src"
_MAIN: Final = "init.server.luau"


def build_rbxmx() -> str:
    """Return the plugin script with its modules as children, in Roblox's XML format."""
    modules = sorted(path for path in SOURCES.glob("*.luau") if path.name != _MAIN)
    below = "".join(_item("ModuleScript", path.stem, path.read_text(encoding="utf-8")) for path in modules)
    main = _item("Script", "Gatehouse", (SOURCES / _MAIN).read_text(encoding="utf-8"), below)
    return f'<roblox version="4">\n{main}</roblox>\n'


def _item(kind: str, name: str, source: str, below: str = "") -> str:
    # Split `]]>`, which would end the CDATA section.
    text = source.replace("]]>", "]]]]><![CDATA[>")
    return (
        f'<Item class="{kind}">\n<Properties>\n<string name="Name">{escape(name)}</string>\n'
        f'<ProtectedString name="Source"><![CDATA[{text}]]></ProtectedString>\n</Properties>\n{below}</Item>\n'
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(build_rbxmx(), encoding="utf-8")
