"""The scopes: what a credential was made for."""

from typing import Final

EVERYDAY: Final = ("mcp:list", "mcp:call", "mcp:call:write")
"""What a credential has unless its maker says otherwise."""
BRIDGES: Final = ("bridge:roblox", "bridge:godot")
ADMIN: Final = "mcp:admin"
SCOPES: Final = frozenset((*EVERYDAY, *BRIDGES, ADMIN))
"""All that there are."""
