"""The environment: `GATEHOUSE__SERVER__PORT`, and the variables that the backends had before they lived here."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_settings import EnvSettingsSource
from pydantic_settings import SettingsError as UndecodableError

from gateway.settings.merge import MergedValues
from gateway.settings.settings import Settings
from gateway.settings.values import Tree, dotted

PREFIX: Final = "GATEHOUSE__"

_SEED_VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "GOX_BRIDGE_ENABLED": ("roblox", "bridge_enabled"),
    "ALLOW_DANGEROUS_OPS": ("godot", "allow_dangerous_ops"),
    "ALLOW_EXTERNAL_TOOLS": ("godot", "allow_external_tools"),
    "GODOT_PATH": ("godot", "godot_path"),
}


def read_environment(environ: Mapping[str, str], gathered: MergedValues) -> None:
    """Add what the variables say, over what was gathered before."""
    given = [name for name in sorted(environ) if name.upper().startswith(PREFIX)]
    paths = {name: _variable_path(name) for name in given}
    source = EnvSettingsSource(Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__")
    for name, at in paths.items():
        gathered.origins[at] = f"environment {name}"
        try:
            gathered.add(_variable(source, at, environ[name]))
        except UndecodableError:
            gathered.problems.append(f"environment {name}: {dotted(at)}: expected JSON")
    _read_seed_variables(environ, gathered, frozenset(paths.values()))


def _variable_path(name: str) -> tuple[str, ...]:
    """`GATEHOUSE__BACKENDS__MY_FILES__CWD` -> backends, my-files, cwd. Names of a child's variables keep their case."""
    parts = name[len(PREFIX) :].split("__")
    path = [part.lower() for part in parts]
    if path[0] in ("backends", "servers"):
        path[1:2] = [part.replace("_", "-") for part in path[1:2]]
    if path[0] == "backends" and path[2:3] in (["env"], ["env_file"]):
        path[3:] = parts[3:]
    return tuple(path)


def _variable(source: EnvSettingsSource, at: tuple[str, ...], text: str) -> Tree:
    if text == "null":
        return _nested(at, None)
    if at[0] == "backends" and at[2:3] == ("options",) and len(at) > 3:
        return _nested(at, _option(text))
    # One at a time: a value that cannot be decoded is then known by its name, and so is one of no known section.
    source.env_vars = {PREFIX.lower() + "__".join(at): text}
    return source() or _nested(at, text)


def _option(text: str) -> Any:
    """A flag, list or mapping if it is one: only the module knows the types of its options. Numbers it reads itself."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if text in ("true", "false") or text.lstrip()[:1] in ("[", "{") else text


def _nested(at: tuple[str, ...], value: Any) -> Tree:
    for key in reversed(at):
        value = {key: value}
    return value


def _read_seed_variables(
    environ: Mapping[str, str], gathered: MergedValues, overridden: frozenset[tuple[str, ...]]
) -> None:
    for name, (namespace, option) in _SEED_VARIABLES.items():
        at = ("backends", namespace, "options", option)
        if name in environ and at not in overridden and _is_module(gathered.tree, namespace):
            gathered.origins[at] = f"environment {name}"
            value = environ[name] if name == "GODOT_PATH" else _flag(environ, name, gathered)
            gathered.add(_nested(at, value))
    if "READ_ONLY_MODE" in environ and _flag(environ, "READ_ONLY_MODE", gathered):
        for tenant in gathered.tree.get("tenants", {"default": None}):
            gathered.add(_nested(("tenants", tenant, "read_only"), True))


def _is_module(tree: Any, namespace: str) -> bool:
    """Only a module has options: a remote server of that name is not ours to set up."""
    entries: Any = tree.get("backends")
    entry: Any = cast("Tree", entries).get(namespace) if isinstance(entries, dict) else None
    return isinstance(entry, dict) and "module" in entry


def _flag(environ: Mapping[str, str], name: str, gathered: MergedValues) -> bool:
    word = environ[name].strip().lower()
    if word not in ("1", "true", "yes", "on", "0", "false", "no", "off", ""):
        gathered.problems.append(f"environment {name}: expected true or false")
    return word in ("1", "true", "yes", "on")
