"""Reading the files of MCP clients: Claude Desktop, Claude Code, Cursor and VS Code.

One server of a client's file as an entry of `backends:`.

`gatehouse import`: the servers of an MCP client's own file become entries of gatehouse.yaml.
"""

import ipaddress
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from gateway.cli.failure import CommandError, say
from gateway.cli.settings_file import SettingsFile, no_longer_served
from gateway.contract import Json

_STRING: Final = r'"(?:[^"\\]|\\.)*"'

_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
# VS Code's files have comments, and commas before a closing bracket.
_PIECE: Final = re.compile(rf"{_STRING}|{_COMMENT}|,(?=\s*(?:(?:{_COMMENT})\s*)*[}}\]])", re.DOTALL)

MAX_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientFile:
    """One server as a client's file has it."""

    name: str
    entry: Json
    folder: Path
    """What the client calls the workspace."""
    project: str = ""
    """Claude Code keeps servers for each project; empty: for all."""


def read_clients_file(file: Path) -> list[ClientFile]:
    """Every server in the file, in its order. Raises `Failure` when it is no such file."""
    tree = _tree(file)
    found = [ClientFile(name, entry, _workspace(file)) for name, entry in _servers(tree)]
    projects: Any = tree.get("projects")
    if isinstance(projects, dict):
        for folder, project in cast("Json", projects).items():
            if isinstance(project, dict):
                found += [
                    ClientFile(name, entry, Path(folder), folder) for name, entry in _servers(cast("Json", project))
                ]
    if not found:
        raise CommandError(f"{file}: no servers in it; expected mcpServers (Claude, Cursor) or servers (VS Code)")
    return found


def _tree(file: Path) -> Json:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise CommandError(f"{file}: over {MAX_BYTES} bytes is no client's file")
        text = file.read_text("utf-8-sig")
    except OSError as exc:
        raise CommandError(f"{file}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file}: not UTF-8") from exc
    try:
        tree: Any = json.loads(plain_json(text))
    except ValueError as exc:
        raise CommandError(f"{file}: not JSON: {exc}") from exc
    if not isinstance(tree, dict):
        raise CommandError(f"{file}: expected an object")
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


_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_URLS: Final = ("url", "serverUrl", "httpUrl")

_COMMAND: Final = frozenset({"command", "args", "env", "cwd", "type"})

_REMOTE: Final = frozenset({"headers", "type", "transport", *_URLS})

_SWITCHES: Final = frozenset({"disabled", "enabled"})


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """The entry, what of the original it leaves out, and what the operator should know. Holds secrets, shows none."""

    name: str
    namespace: str
    kind: str
    entry: Json
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be imported; empty when it can."""


class _Values:
    """Turns a client's variables into ours, and notes which must be set."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.notes: list[str] = []

    def text(self, value: Any) -> str:
        return _VARIABLE.sub(self._variable, str(value)) if isinstance(value, str) else _plain(value)

    def _variable(self, found: re.Match[str]) -> str:
        inner = found[1]
        places = {
            "workspaceFolder": str(self._folder),
            "workspaceFolderBasename": self._folder.name,
            "userHome": str(Path.home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        if inner in places:
            return places[inner]
        kind, _, rest = inner.partition(":") if inner.startswith(("env:", "input:")) else ("", "", inner)
        name, default, _ = rest.partition(":-")
        if kind == "input":
            name = re.sub(r"[^A-Za-z0-9_]", "_", name).upper()
        if not _NAME.fullmatch(name):
            self._note(f"{found[0]} means nothing here and is kept as text")
            return f"${found[0]}"
        if not default and name not in os.environ:
            asked = ", which its client asks its user for" if kind == "input" else ""
            self._note(f"set {name} in the gateway's environment{asked}")
        return f"${{{rest if kind != 'input' else name}}}"

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def translate(found: ClientFile, taken: set[str]) -> ImportedServer:
    """`taken` are the namespaces that others of the same import have; the new one is added."""
    namespace = _namespace(found.name, taken)
    taken.add(namespace)
    given, values = found.entry, _Values(found.folder)
    url = next((given[key] for key in _URLS if isinstance(given.get(key), str)), None)
    if isinstance(given.get("command"), str):
        kind, entry, known = "command", _command(given, values), _COMMAND
    elif url is not None:
        kind, entry, known = "url", _remote(given, url, values), _REMOTE
    else:
        return ImportedServer(found.name, namespace, "", {}, problem="it has neither command nor url")
    if given.get("disabled") is True or given.get("enabled") is False:
        entry["enabled"] = False
        values.notes.append("it is switched off, as it was")
    left_out = tuple(key for key in given if key not in known | _SWITCHES)
    return ImportedServer(found.name, namespace, kind, entry, left_out, tuple(values.notes))


def _command(given: Json, values: _Values) -> Json:
    entry: Json = {"command": values.text(given["command"])}
    if isinstance(given.get("args"), list):
        entry["args"] = [values.text(each) for each in cast("list[Any]", given["args"])]
    if isinstance(given.get("env"), dict):
        entry["env"] = {name: values.text(value) for name, value in cast("Json", given["env"]).items()}
    if given.get("cwd"):
        entry["cwd"] = values.text(given["cwd"])
    return entry


def _remote(given: Json, url: str, values: _Values) -> Json:
    entry: Json = {"url": values.text(url)}
    if (given.get("type") or given.get("transport")) == "sse":
        entry["transport"] = "sse"
    if isinstance(given.get("headers"), dict):
        entry["headers"] = {name: values.text(value) for name, value in cast("Json", given["headers"]).items()}
    if _private(url):
        entry["allow_private"] = True
        values.notes.append("its address is private, so allow_private is set")
    return entry


def _private(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _namespace(name: str, taken: set[str]) -> str:
    """A legal one that no other has: `[a-z][a-z0-9-]{0,19}`."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().rpartition("/")[2]).strip("-") or "server"
    plain = plain if plain[0].isalpha() else f"s-{plain}"
    wanted, number = plain[:20].rstrip("-"), 1
    while wanted in taken:
        number += 1
        tail = f"-{number}"
        wanted = f"{plain[: 20 - len(tail)].rstrip('-')}{tail}"
    return wanted


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def import_file(source: Path, config: Path | None, *, dry_run: bool, replace: bool, as_json: bool) -> None:
    file = SettingsFile(config)
    taken: set[str] = set()
    wanted = _once([translate(found, taken) for found in read_clients_file(source)])
    good = [each for each in wanted if not each.problem]
    there = [each.namespace for each in good if each.namespace in file.backends]
    if there and not replace:
        raise CommandError(f"{file.path} has {', '.join(there)} already; --replace writes over them")
    lost = no_longer_served(file)
    for each in good:
        file.put(each.namespace, each.entry)
    if good and not dry_run:
        file.save()
    if as_json:
        print(
            json.dumps({"file": str(file.path), "written": bool(good) and not dry_run, **_as_object(wanted)}, indent=2)
        )
    else:
        _show(wanted, file.path, dry_run=dry_run)
        if lost and good:
            say(lost)
    if not good:
        raise CommandError(f"{source}: nothing in it could be imported")


def _once(wanted: Sequence[ImportedServer]) -> list[ImportedServer]:
    """The same server under the same name in several projects is one."""
    seen: list[tuple[str, Any]] = []
    kept: list[ImportedServer] = []
    for each in wanted:
        if (each.name, each.entry) not in seen:
            seen.append((each.name, each.entry))
            kept.append(each)
    return kept


def _as_object(wanted: Sequence[ImportedServer]) -> dict[str, Any]:
    # Never the entries themselves: they may hold secrets.
    return {
        "imported": [
            {
                "name": each.name,
                "namespace": each.namespace,
                "kind": each.kind,
                "left_out": list(each.left_out),
                "notes": list(each.notes),
            }
            for each in wanted
            if not each.problem
        ],
        "refused": [{"name": each.name, "reason": each.problem} for each in wanted if each.problem],
    }


def _show(wanted: Sequence[ImportedServer], path: Path, *, dry_run: bool) -> None:
    for each in wanted:
        if each.problem:
            say(f"{each.name} is not imported: {each.problem}")
            continue
        shown = each.namespace if each.namespace == each.name else f"{each.name} as {each.namespace}"
        print(f"{'would import' if dry_run else 'imported'} {shown} ({each.kind})")
        if each.left_out:
            print(f"  left out: {', '.join(each.left_out)}")
        for note in each.notes:
            print(f"  {note}")
    if not dry_run and any(not each.problem for each in wanted):
        print(f"{path} is written; `gatehouse serve` serves it")
