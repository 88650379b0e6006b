"""Reading the files of MCP clients: Claude Desktop, Claude Code, Cursor and VS Code."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from gateway.cli.failure import Failure
from gateway.contract import Json

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
# VS Code's files have comments, and commas before a closing bracket.
_PIECE: Final = re.compile(rf"{_STRING}|{_COMMENT}|,(?=\s*(?:(?:{_COMMENT})\s*)*[}}\]])", re.DOTALL)
MAX_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """One server as a client's file has it."""

    name: str
    entry: Json
    folder: Path
    """What the client calls the workspace."""
    project: str = ""
    """Claude Code keeps servers for each project; empty: for all."""


def read_clients_file(file: Path) -> list[Found]:
    """Every server in the file, in its order. Raises `Failure` when it is no such file."""
    tree = _tree(file)
    found = [Found(name, entry, _workspace(file)) for name, entry in _servers(tree)]
    projects: Any = tree.get("projects")
    if isinstance(projects, dict):
        for folder, project in cast("Json", projects).items():
            if isinstance(project, dict):
                found += [Found(name, entry, Path(folder), folder) for name, entry in _servers(cast("Json", project))]
    if not found:
        raise Failure(f"{file}: no servers in it; expected mcpServers (Claude, Cursor) or servers (VS Code)")
    return found


def _tree(file: Path) -> Json:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise Failure(f"{file}: over {MAX_BYTES} bytes is no client's file")
        text = file.read_text("utf-8-sig")
    except OSError as exc:
        raise Failure(f"{file}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise Failure(f"{file}: not UTF-8") from exc
    try:
        tree: Any = json.loads(plain_json(text))
    except ValueError as exc:
        raise Failure(f"{file}: not JSON: {exc}") from exc
    if not isinstance(tree, dict):
        raise Failure(f"{file}: expected an object")
    return cast("Json", tree)


def plain_json(text: str) -> str:
    """Without comments and trailing commas; lines stay where they are."""

    def kept(piece: re.Match[str]) -> str:
        return piece[0] if piece[0].startswith('"') else re.sub(r"[^\n]", " ", piece[0])

    return _PIECE.sub(kept, text)


def _servers(tree: Json) -> Iterator[tuple[str, Json]]:
    nested: Any = tree.get("mcp")  # VS Code's settings.json
    inner = cast("Json", nested).get("servers") if isinstance(nested, dict) else None
    holders: tuple[Any, ...] = (tree.get("mcpServers"), tree.get("servers"), inner)
    for holder in holders:
        if isinstance(holder, dict):
            for name, entry in cast("Json", holder).items():
                if isinstance(entry, dict):
                    yield name, cast("Json", entry)


def _workspace(file: Path) -> Path:
    folder = file.absolute().parent
    return folder.parent if folder.name in (".vscode", ".cursor") else folder
