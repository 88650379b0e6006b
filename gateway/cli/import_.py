"""`gatehouse import`: converts the servers in the file of an MCP client into entries of gatehouse.yaml.

Supported are the clients that `client_apps` lists: JSON, TOML (Codex) and YAML files (Goose, Continue, LibreChat).
"""

import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import yaml

from gateway.cli.client_config import strip_comments
from gateway.cli.failure import CommandError, print_stderr
from gateway.cli.settings_file import CLIENT_TRUST, CLIENT_TRUST_NOTICE, SettingsFile, default_backends_notice
from gateway.contract import Json

MAX_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientServer:
    """One server entry of a client's file."""

    name: str
    entry: Json
    folder: Path
    """The workspace folder, for variables such as `${workspaceFolder}`."""
    project: str = ""
    """Project of the entry in the file of Claude Code; empty: all projects."""


def read_client_file(file: Path) -> list[ClientServer]:
    """Return every server in the file, in order. Raises `CommandError` if the file has another format."""
    tree = _tree(file)
    found = [ClientServer(name, entry, _workspace(file)) for name, entry in _servers(tree)]
    projects: Any = tree.get("projects")
    if isinstance(projects, dict):
        for folder, project in cast("Json", projects).items():
            if isinstance(project, dict):
                found += [
                    ClientServer(name, entry, Path(folder), folder) for name, entry in _servers(cast("Json", project))
                ]
    if not found:
        raise CommandError(f"{file}: no servers found; expected mcpServers (Claude, Cursor) or servers (VS Code)")
    return found


def _tree(file: Path) -> Json:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise CommandError(f"{file}: larger than {MAX_BYTES} bytes; give the configuration file of an MCP client")
        text = file.read_text("utf-8-sig")
    except OSError as exc:
        raise CommandError(f"{file}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file}: not UTF-8; give a JSON file") from exc
    try:
        tree: Any = _decode(file.suffix.lower(), text)
    except (ValueError, yaml.YAMLError) as exc:
        kind = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}.get(file.suffix.lower(), "JSON")
        raise CommandError(f"{file}: not {kind}: {exc}") from exc
    if not isinstance(tree, dict):
        raise CommandError(f"{file}: not a JSON object; give the configuration file of an MCP client")
    return cast("Json", tree)


def _decode(suffix: str, text: str) -> Any:
    match suffix:
        case ".toml":
            return tomllib.loads(text)
        case ".yaml" | ".yml":
            return yaml.safe_load(text)
        case _:
            return json.loads(strip_comments(text))


_HOLDERS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers", "extensions", "mcp")
"""Keys that contain servers: most clients, VS Code, Zed, Codex, Goose, opencode."""


def _servers(tree: Json) -> Iterator[tuple[str, Json]]:
    for key in _HOLDERS:
        holder: Any = tree.get(key)
        if key == "mcp" and isinstance(holder, dict) and "servers" in holder:
            holder = cast("Json", holder)["servers"]  # VS Code's settings.json
        if isinstance(holder, list):  # Continue
            named = [cast("Json", each) for each in cast("list[Any]", holder) if isinstance(each, dict)]
            holder = {str(each.get("name")): each for each in named}
        if not isinstance(holder, dict):
            continue
        for name, entry in cast("Json", holder).items():
            if isinstance(entry, dict) and (known := _common_form(key, cast("Json", entry))) is not None:
                yield name, known


def _common_form(key: str, entry: Json) -> Json | None:
    """The entry with the keys that most clients use; None for one that is no MCP server."""
    match key:
        case "extensions":  # Goose
            if entry.get("type") in ("builtin", "platform", "frontend", "inline_python"):
                return None
            renamed = {"uri": "url", "cmd": "command", "envs": "env"}
            dropped = {"name", "type", "timeout", "env_keys", "bundled", "description", "display_name"}
        case "mcp":  # opencode
            renamed, dropped = {"environment": "env"}, {"type"}
        case "context_servers":  # Zed
            renamed, dropped = {}, {"source", "type"}
        case "mcp_servers":  # Codex
            renamed, dropped = {"http_headers": "headers"}, {"startup_timeout_sec", "tool_timeout_sec"}
        case _:
            # Members of Cline, Continue and LibreChat beside the server itself.
            renamed, dropped = {}, {"name", "requestOptions"}
    common = {renamed.get(name, name): value for name, value in entry.items() if name not in dropped}
    options: Any = entry.get("requestOptions")
    if isinstance(options, dict) and "headers" in options:
        common["headers"] = cast("Json", options)["headers"]
    if isinstance(variable := common.pop("bearer_token_env_var", None), str):
        common["headers"] = {**common.get("headers", {}), "Authorization": f"Bearer ${{{variable}}}"}
    if isinstance(command := common.get("command"), list) and command:
        program, *arguments = map(str, cast("list[Any]", command))
        common |= {"command": program, "args": arguments}
    return common


def _workspace(file: Path) -> Path:
    folder = file.absolute().parent
    return folder.parent if folder.name in (".vscode", ".cursor") else folder


_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_COMMAND: Final = frozenset({"command", "args", "env", "cwd", "type"})
_REMOTE: Final = frozenset({"headers", "type", "transport", *_URLS})
_SWITCHES: Final = frozenset({"disabled", "enabled"})


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """The converted entry, the keys it leaves out, and notes for the operator. The entry may contain secrets."""

    name: str
    namespace: str
    kind: str
    entry: Json
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be imported; empty when it can."""


class _VariableTranslator:
    """Translates variable references of a client into those of Gatehouse, and notes which must be set."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes: list[str] = []

    def text(self, value: Any) -> str:
        return _VARIABLE.sub(self._variable, str(value)) if isinstance(value, str) else _scalar_text(value)

    def _variable(self, found: re.Match[str]) -> str:
        inner = found[1]
        built_in = {
            "workspaceFolder": str(self._folder),
            "workspaceFolderBasename": self._folder.name,
            "userHome": str(Path.home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        if inner in built_in:
            return built_in[inner]
        kind, _, rest = inner.partition(":") if inner.startswith(("env:", "input:")) else ("", "", inner)
        name, default, _ = rest.partition(":-")
        if kind == "input":
            name = re.sub(r"[^A-Za-z0-9_]", "_", name).upper()
        if not _NAME.fullmatch(name):
            self._note(f"{found[0]} is not supported and is kept as text")
            return f"${found[0]}"
        if not default and name not in os.environ:
            origin = " (the client prompts for it)" if kind == "input" else ""
            self._note(f"set {name} in the environment of the gateway{origin}")
        return f"${{{rest if kind != 'input' else name}}}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def translate(found: ClientServer, taken: set[str]) -> ImportedServer:
    """Convert one server. `taken` holds the namespaces already used in this import; the new one is added."""
    namespace = _namespace(found.name, taken)
    taken.add(namespace)
    source, variables = found.entry, _VariableTranslator(found.folder)
    url = next((source[key] for key in _URLS if isinstance(source.get(key), str)), None)
    if isinstance(source.get("command"), str):
        kind, entry, known = "command", _command(source, variables), _COMMAND
    elif url is not None:
        kind, entry, known = "url", _remote(source, url, variables), _REMOTE
    else:
        return ImportedServer(found.name, namespace, "", {}, problem="the entry has neither command nor url")
    if source.get("disabled") is True or source.get("enabled") is False:
        entry["enabled"] = False
        variables.notes.append("it is disabled, as in the client")
    entry["trust"] = CLIENT_TRUST
    left_out = tuple(key for key in source if key not in known | _SWITCHES)
    return ImportedServer(found.name, namespace, kind, entry, left_out, tuple(variables.notes))


def _command(source: Json, variables: _VariableTranslator) -> Json:
    entry: Json = {"command": variables.text(source["command"])}
    if isinstance(source.get("args"), list):
        entry["args"] = [variables.text(each) for each in cast("list[Any]", source["args"])]
    if isinstance(source.get("env"), dict):
        entry["env"] = {name: variables.text(value) for name, value in cast("Json", source["env"]).items()}
    if source.get("cwd"):
        entry["cwd"] = variables.text(source["cwd"])
    return entry


def _remote(source: Json, url: str, variables: _VariableTranslator) -> Json:
    entry: Json = {"url": variables.text(url)}
    if (source.get("type") or source.get("transport")) == "sse":
        entry["transport"] = "sse"
    if isinstance(source.get("headers"), dict):
        entry["headers"] = {name: variables.text(value) for name, value in cast("Json", source["headers"]).items()}
    if _is_private(url):
        entry["allow_private"] = True
        variables.notes.append("its address is private, so allow_private is set")
    return entry


def _is_private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _namespace(name: str, taken: set[str]) -> str:
    """Derive a unique, valid namespace: `[a-z][a-z0-9-]{0,19}`."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().rpartition("/")[2]).strip("-") or "server"
    plain = plain if plain[0].isalpha() else f"s-{plain}"
    namespace, number = plain[:20].rstrip("-"), 1
    while namespace in taken:
        number += 1
        suffix = f"-{number}"
        namespace = f"{plain[: 20 - len(suffix)].rstrip('-')}{suffix}"
    return namespace


def _scalar_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def import_file(source: Path, config: Path | None, *, dry_run: bool, replace: bool, as_json: bool) -> None:
    file = SettingsFile(config)
    taken: set[str] = set()
    servers = _deduplicate([translate(found, taken) for found in read_client_file(source)])
    valid = [each for each in servers if not each.problem]
    existing = [each.namespace for each in valid if each.namespace in file.backends]
    if existing and not replace:
        raise CommandError(f"{file.path} already contains {', '.join(existing)}; --replace overwrites them")
    notice = default_backends_notice(file)
    for each in valid:
        file.put(each.namespace, each.entry)
    if valid and not dry_run:
        file.save()
    if as_json:
        written = bool(valid) and not dry_run
        print(json.dumps({"file": str(file.path), "written": written, **_as_object(servers)}, indent=2))
    else:
        _show(servers, file.path, dry_run=dry_run)
        if notice and valid:
            print_stderr(notice)
    if not valid:
        raise CommandError(f"{source}: no server could be imported; see the messages above")


def _deduplicate(servers: Sequence[ImportedServer]) -> list[ImportedServer]:
    """Merge servers with the same name and entry, such as those of several projects."""
    seen: list[tuple[str, Any]] = []
    unique: list[ImportedServer] = []
    for each in servers:
        if (each.name, each.entry) not in seen:
            seen.append((each.name, each.entry))
            unique.append(each)
    return unique


def _as_object(servers: Sequence[ImportedServer]) -> dict[str, Any]:
    # Without the entries: they may contain secrets.
    return {
        "imported": [
            {
                "name": each.name,
                "namespace": each.namespace,
                "kind": each.kind,
                "trust": each.entry.get("trust"),
                "left_out": list(each.left_out),
                "notes": list(each.notes),
            }
            for each in servers
            if not each.problem
        ],
        "refused": [{"name": each.name, "reason": each.problem} for each in servers if each.problem],
    }


def _show(servers: Sequence[ImportedServer], path: Path, *, dry_run: bool) -> None:
    for each in servers:
        if each.problem:
            print_stderr(f"{each.name} was not imported: {each.problem}")
            continue
        shown = each.namespace if each.namespace == each.name else f"{each.name} as {each.namespace}"
        print(f"{'would import' if dry_run else 'imported'} {shown} ({each.kind})")
        if each.left_out:
            print(f"  ignored keys: {', '.join(each.left_out)}")
        for note in each.notes:
            print(f"  {note}")
    if any(not each.problem for each in servers):
        print(CLIENT_TRUST_NOTICE)
    if not dry_run and any(not each.problem for each in servers):
        print(f"wrote {path}; start the gateway with `gatehouse serve`")
