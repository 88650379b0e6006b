"""One server of a client's file as an entry of `backends:`."""

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from gateway.cli.imports.clients import Found
from gateway.contract import Json

_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_COMMAND: Final = frozenset({"command", "args", "env", "cwd", "type"})
_REMOTE: Final = frozenset({"headers", "type", "transport", *_URLS})
_SWITCHES: Final = frozenset({"disabled", "enabled"})


@dataclass(frozen=True, slots=True)
class Translated:
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


def translate(found: Found, taken: set[str]) -> Translated:
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
        return Translated(found.name, namespace, "", {}, problem="it has neither command nor url")
    if given.get("disabled") is True or given.get("enabled") is False:
        entry["enabled"] = False
        values.notes.append("it is switched off, as it was")
    left_out = tuple(key for key in given if key not in known | _SWITCHES)
    return Translated(found.name, namespace, kind, entry, left_out, tuple(values.notes))


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
