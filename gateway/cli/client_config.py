"""Entries of MCP clients, and how `gatehouse connect` edits their files. `client_apps` lists all clients.

Editing changes one entry of a client's file; everything else, comments included, is preserved.
"""

import io
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
from gateway.console import connect_lines
from gateway.contract import Json

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
# Files of VS Code may contain comments and trailing commas.
_TOKEN: Final = re.compile(rf"{_STRING}|{_COMMENT}|,(?=\s*(?:(?:{_COMMENT})\s*)*[}}\]])", re.DOTALL)
VARIABLE: Final = "GATEHOUSE_TOKEN"


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """The connection that the user wants to set up in a client."""

    name: str
    url: str
    key: bool = False
    """Whether the client authenticates with an API key instead of OAuth."""
    token: str | None = None
    """The key itself, for a client that does not expand environment variables."""


@dataclass(frozen=True, slots=True)
class ConnectInstructions:
    """The command to run, or the entry to write into the client's file."""

    command: str = ""
    """A command that adds the server, if the client has one."""
    servers_key: str = ""
    """The key in the client's file that contains the servers."""
    entry: Json | None = None
    format: Literal["json", "toml", "yaml", "yaml-list"] = "json"
    """`yaml-list`: the servers are a list, each with its name."""
    inputs: Json | None = None
    """Definition of a secret input of VS Code, which prompts for it once."""
    next_step: str = ""
    head: Json | None = None
    """Members that a new file begins with."""

    def text(self, name: str) -> str:
        """The entry as a complete file."""
        if self.format == "toml":
            return toml_table(name, self.entry or {})
        if self.format != "json":
            return edit_yaml("", name, self).rstrip()
        whole: Json = {self.servers_key: {name: self.entry}}
        return json.dumps(whole | ({"inputs": [self.inputs]} if self.inputs else {}), indent=2, ensure_ascii=False)


def toml_table(name: str, entry: Mapping[str, Any]) -> str:
    """A server entry in the TOML format of Codex. JSON strings are valid TOML strings."""
    return "\n".join([f"[mcp_servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())])


def claude_code(request: ConnectRequest) -> ConnectInstructions:
    header = f' --header "Authorization: Bearer ${VARIABLE}"' if request.key else ""
    # The client expands the variable, so the project's file contains no secret.
    entry: Json = {"type": "http", "url": request.url} | _headers(request, f"${{{VARIABLE}}}")
    return ConnectInstructions(
        connect_lines.claude_code(request.url, request.name) + header,
        "mcpServers",
        entry,
        next_step="check it with /mcp in Claude Code" if request.key else "sign in with /mcp in Claude Code",
    )


def claude_desktop(request: ConnectRequest) -> ConnectInstructions:
    # The file supports only commands, which are started without a shell: the path must be absolute.
    command = shutil.which("gatehouse") or str(Path(sys.argv[0]).absolute())
    entry: Json = {"command": command, "args": ["stdio", "--url", request.url]}
    if request.key:
        entry["env"] = {VARIABLE: request.token or "gth_..."}
    restart = "restart Claude Desktop"
    next_step = restart if "env" in entry else f"{restart}; it opens the browser to sign in"
    return ConnectInstructions("", "mcpServers", entry, next_step=next_step)


def cursor(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"url": request.url} | _headers(request, f"${{env:{VARIABLE}}}")
    return ConnectInstructions("", "mcpServers", entry, next_step="check it in Cursor under Settings, MCP")


def vscode(request: ConnectRequest) -> ConnectInstructions:
    input_id = f"{request.name}-key"
    entry: Json = {"type": "http", "url": request.url} | _headers(request, f"${{input:{input_id}}}")
    key_input: Json = {"id": input_id, "type": "promptString", "description": "Gatehouse key", "password": True}
    line = "" if request.key else connect_lines.vs_code(request.url, request.name)
    return ConnectInstructions(
        line, "servers", entry, inputs=key_input if request.key else None, next_step="start the server in VS Code"
    )


def codex(request: ConnectRequest) -> ConnectInstructions:
    entry: Json = {"url": request.url} | ({"bearer_token_env_var": VARIABLE} if request.key else {})
    option = f" --bearer-token-env-var {VARIABLE}" if request.key else ""
    line = f"codex mcp add {request.name} --url {shlex.quote(request.url)}{option}"
    next_step = "" if request.key else f"run codex mcp login {request.name}"
    return ConnectInstructions(line, "mcp_servers", entry, "toml", next_step=next_step)


def inspector(request: ConnectRequest) -> ConnectInstructions:
    header = f' --header "Authorization: Bearer ${VARIABLE}"'
    program = "npx @modelcontextprotocol/inspector --cli"
    return ConnectInstructions(
        f"{program} {shlex.quote(request.url)} --transport http{header} --protocol-era modern --method tools/list"
    )


def _headers(request: ConnectRequest, variable: str) -> Json:
    return {"headers": {"Authorization": f"Bearer {variable}"}} if request.key else {}


_BLANK: Final = re.compile(r"\s*")
_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class FileEdit:
    file: Path
    changed: bool
    backup: Path | None = None


def write(file: Path, name: str, instructions: ConnectInstructions) -> FileEdit:
    """Write the entry and keep a backup. Raises `CommandError` and leaves the file unchanged if it cannot be parsed."""
    file = file.resolve() if file.is_symlink() else file
    before = _text(file)
    try:
        after = _EDITORS[instructions.format](before, name, instructions)
    except (ValueError, tomllib.TOMLDecodeError) as exc:
        raise CommandError(f"{file}: cannot be parsed and was not changed: {exc}") from exc
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
    """Replace the file atomically. A new file may contain a key, so only its owner can read it."""
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


# ---- JSON with comments ----


def _json(text: str, name: str, instructions: ConnectInstructions) -> str:
    tree = _tree(text)
    if _object(tree.get(instructions.servers_key, {})).get(name) != instructions.entry:
        text = _put(text, (instructions.servers_key, name), instructions.entry)
    if instructions.inputs is not None and all(each.get("id") != instructions.inputs["id"] for each in _inputs(tree)):
        text = _put(text, ("inputs",), [*_inputs(tree), instructions.inputs])
    _tree(text)  # the result must be valid
    return text


def _tree(text: str) -> Json:
    if not text.strip():
        return {}
    return _object(json.loads(strip_comments(text)))


def _object(found: Any) -> Json:
    if not isinstance(found, dict):
        raise ValueError("expected an object")
    return cast("Json", found)


def _inputs(tree: Json) -> list[Json]:
    return cast("list[Json]", tree.get("inputs") or [])


def _put(text: str, path: tuple[str, ...], value: Any) -> str:
    if not text.strip():
        text = "{}\n"
    # Comments are replaced by blanks, so offsets are the same in both texts.
    plain = strip_comments(text)
    return _put_in(text, plain, _skip_blank(plain, 0), path, value, 1)


def _put_in(text: str, plain: str, start: int, path: tuple[str, ...], value: Any, depth: int) -> str:
    key, *rest = path
    members = list(_members(plain, start))
    for found, value_start, value_end in members:
        if found == key and rest and plain[value_start] == "{":
            return _put_in(text, plain, value_start, tuple(rest), value, depth + 1)
        if found == key:
            return text[:value_start] + _indented_json(_nested(rest, value), depth) + text[value_end:]
    shown = f"\n{'  ' * depth}{json.dumps(key)}: {_indented_json(_nested(rest, value), depth)}"
    if members:
        return f"{text[: start + 1]}{shown},{text[start + 1 :]}"
    end = plain.index("}", start)
    comments = text[start + 1 : end].rstrip()
    return f"{text[: start + 1]}{comments}{shown}\n{'  ' * (depth - 1)}{text[end:]}"


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path else value


def _indented_json(value: Any, depth: int) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", f"\n{'  ' * depth}")


def _members(plain: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the key of each member of the object at `start`, with the start and end of its value."""
    at = _skip_blank(plain, start + 1)
    while plain[at] != "}":
        key, at = _decode(plain, at)
        value_start = _skip_blank(plain, _skip_blank(plain, at) + 1)
        _, value_end = _decode(plain, value_start)
        yield key, value_start, value_end
        at = _skip_blank(plain, value_end)
        at = _skip_blank(plain, at + 1) if plain[at] == "," else at


def _skip_blank(plain: str, at: int) -> int:
    found = _BLANK.match(plain, at)
    assert found is not None
    return found.end()


# ---- TOML ----


def _toml(text: str, name: str, instructions: ConnectInstructions) -> str:
    entry = instructions.entry or {}
    tree = tomllib.loads(text)
    if (_object(tree.get(instructions.servers_key, {}))).get(name) == entry:
        return text
    block = f"{toml_table(name, entry)}\n"
    # Matches from the table header to the next header.
    header = rf"^\[{instructions.servers_key}\.{re.escape(name)}\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z))*"
    after, found = re.subn(header, lambda _: f"{block}\n", text, count=1, flags=re.MULTILINE)
    if not found:
        after = f"{text.rstrip()}\n\n{block}".lstrip()
    if tomllib.loads(after).get(instructions.servers_key, {}).get(name) != entry:
        raise ValueError(f"{instructions.servers_key}.{name} has an unsupported layout; edit it by hand")
    return after


# ---- YAML ----


def edit_yaml(text: str, name: str, instructions: ConnectInstructions) -> str:
    """Put the entry into a YAML file; comments and order stay."""
    from ruamel.yaml import YAML  # the welcome page imports this module and needs no YAML
    from ruamel.yaml.error import YAMLError

    editor: Any = YAML()
    editor.width = 4096
    editor.preserve_quotes = True
    try:
        tree = _object(editor.load(text) if text.strip() else dict(instructions.head or {}))
    except YAMLError as exc:
        raise ValueError(str(exc).partition("\n")[0]) from exc
    key, entry = instructions.servers_key, instructions.entry
    if instructions.format == "yaml":
        servers = _object(tree.get(key) or {})
        if servers.get(name) == entry:
            return text
        servers[name] = entry
        tree[key] = servers
    else:
        listed = cast("list[Any]", tree.get(key) or [])
        if entry in listed:
            return text
        tree[key] = [*(each for each in listed if _object(each).get("name") != name), entry]
    out = io.StringIO()
    editor.dump(tree, out)
    return out.getvalue()


_EDITORS: Final[Mapping[str, Callable[[str, str, ConnectInstructions], str]]] = {
    "json": _json,
    "toml": _toml,
    "yaml": edit_yaml,
    "yaml-list": edit_yaml,
}


def strip_comments(text: str) -> str:
    """Replace comments and trailing commas with blanks; offsets and line numbers stay the same."""

    def replace(token: re.Match[str]) -> str:
        return token[0] if token[0].startswith('"') else re.sub(r"[^\n]", " ", token[0])

    return _TOKEN.sub(replace, text)
