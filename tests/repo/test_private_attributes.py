"""Private attributes of libraries are listed in CONTRIBUTING.md, exist in the installed versions, and are no more."""

import inspect
import re
import sys
from pathlib import Path

import aiosqlite
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant
from mcp.client.auth import OAuthClientProvider
from mcp.server.mcpserver import MCPServer

from tests.repo.private_attributes import ROOT, used_private_attributes

ROW = re.compile(r"^\| `(_\w+)` of `([\w.]+)` \| (\S+) \| ", re.MULTILINE)
OWNERS: dict[str, type] = {
    "aiosqlite.Connection": aiosqlite.Connection,
    "MCPServer": MCPServer,
    "OAuthClientProvider": OAuthClientProvider,
    "RefreshTokenGrant": RefreshTokenGrant,
}


def listed() -> dict[str, tuple[str, str]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return {name: (owner, tested) for name, owner, tested in ROW.findall(text)}


def test_every_private_attribute_in_use_is_listed() -> None:
    assert set(used_private_attributes()) == set(listed())


def test_a_new_private_attribute_is_found(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "a.py").write_text(
        "class Ours(Base):\n"
        "    def __init__(self) -> None:\n"
        "        self._mine = 1\n"
        "    def use(self, library) -> None:\n"
        "        print(self._mine, self._theirs, library._hidden)\n"
    )
    assert set(used_private_attributes(tmp_path)) == {"_theirs", "_hidden"}


def test_the_listed_attributes_exist_in_the_installed_versions() -> None:
    for name, (owner, tested) in listed().items():
        modules = {each.__module__ for each in OWNERS[owner].__mro__} - {"builtins", "typing", "abc"}
        sources = "".join(inspect.getsource(sys.modules[module]) for module in modules)
        assert re.search(rf"\b{name}\b", sources), (
            f"{owner} has no {name} any more (tested with {tested}): adapt the code that uses it."
        )
