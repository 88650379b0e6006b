"""What each client wants to be told, and where it looks for it.

One entry into a client's file; everything else in it stays as it was written, comments included.
"""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from gateway.cli.failure import CommandError
from gateway.cli.import_ import plain_json
from gateway.console import connect_lines
from gateway.contract import Json

VARIABLE: Final = "GATEHOUSE_TOKEN"


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """What the user asked for."""

    name: str
    url: str
    key: bool = False
    """Whether it comes with a key instead of signing in."""
    token: str | None = None
    """The key itself, for a client that can name no variable."""


@dataclass(frozen=True, slots=True)
class ConnectInstructions:
    """What to run, or what to write where."""

    line: str = ""
    """A command that does it, where the client has one."""
    holder: str = ""
    """The key of the client's file under which servers stand."""
    entry: Json | None = None
    form: Literal["json", "toml"] = "json"
    inputs: Json | None = None
    """What VS Code asks for, once, and keeps for itself."""
    after: str = ""

    def text(self, name: str) -> str:
        """The entry as a file that holds nothing else."""
        if self.form == "toml":
            return table(name, self.entry or {})
        whole: Json = {self.holder: {name: self.entry}}
        return json.dumps(whole | ({"inputs": [self.inputs]} if self.inputs else {}), indent=2, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ClientApp:
    title: str
    tell: Callable[[ConnectRequest], ConnectInstructions]
    file: Callable[[], Path] | None = None
    """Where it looks; None for one that keeps no file."""


def table(name: str, entry: Mapping[str, Any]) -> str:
    """A server as Codex has it in its TOML. A JSON string is a TOML string."""
    return "\n".join([f"[mcp_servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())])


def claude_code(wish: ConnectRequest) -> ConnectInstructions:
    header = f' --header "Authorization: Bearer ${VARIABLE}"' if wish.key else ""
    # In a project's file the variable is filled in by the client, so the file may be shared.
    entry: Json = {"type": "http", "url": wish.url} | _headers(wish, f"${{{VARIABLE}}}")
    return ConnectInstructions(
        connect_lines.claude_code(wish.url, wish.name) + header,
        "mcpServers",
        entry,
        after="in Claude Code, /mcp shows it" if wish.key else "in Claude Code, /mcp shows it and signs you in",
    )


def claude_desktop(wish: ConnectRequest) -> ConnectInstructions:
    # Its file takes programs only, and it starts them without a shell: the path must be whole.
    command = shutil.which("gatehouse") or str(Path(sys.argv[0]).absolute())
    entry: Json = {"command": command, "args": ["stdio", "--url", wish.url]}
    if wish.key:
        entry["env"] = {VARIABLE: wish.token or "gth_..."}
    after = "start Claude Desktop again" if "env" in entry else "start Claude Desktop again, which opens the browser"
    return ConnectInstructions("", "mcpServers", entry, after=after)


def cursor(wish: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"url": wish.url} | _headers(wish, f"${{env:{VARIABLE}}}")
    return ConnectInstructions("", "mcpServers", entry, after="Cursor shows it under Settings, MCP")


def vscode(wish: ConnectRequest) -> ConnectInstructions:
    input_id = f"{wish.name}-key"
    entry: Json = {"type": "http", "url": wish.url} | _headers(wish, f"${{input:{input_id}}}")
    asked: Json = {"id": input_id, "type": "promptString", "description": "Gatehouse key", "password": True}
    line = "" if wish.key else connect_lines.vs_code(wish.url, wish.name)
    return ConnectInstructions(
        line, "servers", entry, inputs=asked if wish.key else None, after="VS Code offers to start it"
    )


def codex(wish: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"url": wish.url} | ({"bearer_token_env_var": VARIABLE} if wish.key else {})
    option = f" --bearer-token-env-var {VARIABLE}" if wish.key else ""
    line = f"codex mcp add {wish.name} --url {shlex.quote(wish.url)}{option}"
    after = "" if wish.key else f"codex mcp login {wish.name}"
    return ConnectInstructions(line, "mcp_servers", entry, "toml", after=after)


def inspector(wish: ConnectRequest) -> ConnectInstructions:
    header = f' --header "Authorization: Bearer ${VARIABLE}"'
    program = "npx @modelcontextprotocol/inspector --cli"
    return ConnectInstructions(
        f"{program} {shlex.quote(wish.url)} --transport http{header} --protocol-era modern --method tools/list"
    )


def _headers(wish: ConnectRequest, variable: str) -> Json:
    return {"headers": {"Authorization": f"Bearer {variable}"}} if wish.key else {}


def _desktop_file() -> Path:
    name = Path("Claude") / "claude_desktop_config.json"
    match sys.platform:
        case "darwin":
            return Path.home() / "Library" / "Application Support" / name
        case "win32":
            return Path(os.environ.get("APPDATA", Path.home())) / name
        case _:
            return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


CLIENTS: Final[Mapping[str, ClientApp]] = {
    "claude-code": ClientApp("Claude Code", claude_code, lambda: Path(".mcp.json")),
    "claude-desktop": ClientApp("Claude Desktop", claude_desktop, _desktop_file),
    "cursor": ClientApp("Cursor", cursor, lambda: Path.home() / ".cursor" / "mcp.json"),
    "vscode": ClientApp("VS Code", vscode, lambda: Path(".vscode") / "mcp.json"),
    "codex": ClientApp("Codex", codex, lambda: Path.home() / ".codex" / "config.toml"),
    "inspector": ClientApp("MCP Inspector", inspector),
}


_BLANK: Final = re.compile(r"\s*")

_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class FileEdit:
    file: Path
    changed: bool
    backup: Path | None = None


def write(file: Path, name: str, told: ConnectInstructions) -> FileEdit:
    """Raises `Failure`, the file being as it was."""
    file = file.resolve() if file.is_symlink() else file
    before = _text(file)
    try:
        after = _toml(before, name, told) if told.form == "toml" else _json(before, name, told)
    except (ValueError, tomllib.TOMLDecodeError) as exc:
        raise CommandError(f"{file}: cannot be read, so it is left as it was: {exc}") from exc
    if after == before:
        return FileEdit(file, False)
    backup = None
    if before:
        backup = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
        shutil.copy2(file, backup)
    _replace(file, after)
    return FileEdit(file, True, backup)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandError(f"{file}: cannot be read: {exc}") from exc


def _replace(file: Path, text: str) -> None:
    """At once or not at all; a new file may hold a key and is its owner's alone."""
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(draft, mode)
        os.replace(draft, file)
    except OSError as exc:
        raise CommandError(f"{file}: cannot be written: {exc.strerror}") from exc


# ---- JSON, with the comments that some clients allow ----


def _json(text: str, name: str, told: ConnectInstructions) -> str:
    tree = _tree(text)
    if _object(tree.get(told.holder, {})).get(name) != told.entry:
        text = _put(text, (told.holder, name), told.entry)
    if told.inputs is not None and all(each.get("id") != told.inputs["id"] for each in _inputs(tree)):
        text = _put(text, ("inputs",), [*_inputs(tree), told.inputs])
    _tree(text)  # what was made must be readable
    return text


def _tree(text: str) -> Json:
    if not text.strip():
        return {}
    return _object(json.loads(plain_json(text)))


def _object(found: Any) -> Json:
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return cast("Json", found)


def _inputs(tree: Json) -> list[Json]:
    return cast("list[Json]", tree.get("inputs") or [])


def _put(text: str, path: tuple[str, ...], value: Any) -> str:
    if not text.strip():
        text = "{}\n"
    # Blanks stand where comments were, so places in the one are places in the other.
    plain = plain_json(text)
    return _put_in(text, plain, _blank(plain, 0), path, value, 1)


def _put_in(text: str, plain: str, start: int, path: tuple[str, ...], value: Any, depth: int) -> str:
    key, *below = path
    there = list(_members(plain, start))
    for found, began, ended in there:
        if found == key and below and plain[began] == "{":
            return _put_in(text, plain, began, tuple(below), value, depth + 1)
        if found == key:
            return text[:began] + _shown(_nested(below, value), depth) + text[ended:]
    shown = f"\n{'  ' * depth}{json.dumps(key)}: {_shown(_nested(below, value), depth)}"
    if there:
        return f"{text[: start + 1]}{shown},{text[start + 1 :]}"
    end = plain.index("}", start)
    kept = text[start + 1 : end].rstrip()
    return f"{text[: start + 1]}{kept}{shown}\n{'  ' * (depth - 1)}{text[end:]}"


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path else value


def _shown(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{'  ' * depth}")


def _members(plain: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Key, and where its value begins and ends, of each member of the object that begins there."""
    at = _blank(plain, start + 1)
    while plain[at] != "}":
        key, at = _decode(plain, at)
        began = _blank(plain, _blank(plain, at) + 1)
        _, ended = _decode(plain, began)
        yield key, began, ended
        at = _blank(plain, ended)
        at = _blank(plain, at + 1) if plain[at] == "," else at


def _blank(plain: str, at: int) -> int:
    found = _BLANK.match(plain, at)
    assert found is not None
    return found.end()


# ---- TOML ----


def _toml(text: str, name: str, told: ConnectInstructions) -> str:
    wanted = told.entry or {}
    tree = tomllib.loads(text)
    if (_object(tree.get(told.holder, {}))).get(name) == wanted:
        return text
    block = f"{table(name, wanted)}\n"
    # From its heading to the next heading that is not one of its own parts.
    header = rf"^\[{told.holder}\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*"
    after, found = re.subn(header, lambda _: f"{block}\n", text, count=1, flags=re.MULTILINE)
    if not found:
        after = f"{text.rstrip()}\n\n{block}".lstrip()
    if tomllib.loads(after).get(told.holder, {}).get(name) != wanted:
        raise ValueError(f"{told.holder}.{name} is written there in a way that is not ours to change")
    return after
