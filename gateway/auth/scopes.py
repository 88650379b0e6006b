"""The scopes that credentials may have, with their descriptions for the consent page."""

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.contract.caller import SCOPES

_DESCRIPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "mcp:list": ("List your tools", "names and descriptions"),
    "mcp:call": ("Call read-only tools", "and idempotent ones"),
    "mcp:call:write": ("Call tools that modify data", "on your behalf"),
    "mcp:approve": ("Approve calls of others", "in the console"),
    "mcp:admin": ("Administer this gateway", "tenants, keys and policies"),
}


class KnownScopes:
    """The scopes of the gateway and of the modules that it serves now."""

    def __init__(self) -> None:
        self._modules: Mapping[str, tuple[str, str]] = {}

    def set_modules(self, scopes: Mapping[str, tuple[str, str]]) -> None:
        """Replace the scopes of modules: description and namespace of each."""
        self._modules = dict(scopes)

    def __contains__(self, scope: object) -> bool:
        return scope in SCOPES or scope in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(SCOPES | self._modules.keys())

    def describe(self, scope: str) -> tuple[str, str]:
        """Return a title and a detail."""
        if scope in self._modules:
            title, namespace = self._modules[scope]
            return title, f"for the tools of {namespace}"
        return _DESCRIPTIONS.get(scope, (scope, ""))
