"""Reads settings from environment variables: `GATEHOUSE__SERVER__PORT`, and `READ_ONLY_MODE`.

Variables that modules declare for their options are read when a module is loaded (`Settings.options_with_aliases`).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic_settings import EnvSettingsSource
from pydantic_settings import SettingsError as UndecodableError

from gateway.settings.merge import MergedValues
from gateway.settings.settings import Settings
from gateway.settings.values import Tree, dotted_path, parse_flag

PREFIX: Final = "GATEHOUSE__"


def read_environment(environ: Mapping[str, str], merged: MergedValues) -> None:
    """Merge the variables over the values read so far."""
    names = [name for name in sorted(environ) if name.upper().startswith(PREFIX)]
    paths = {name: _variable_path(name) for name in names}
    source = EnvSettingsSource(Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__")
    for name, key_path in paths.items():
        merged.origins[key_path] = f"environment {name}"
        try:
            merged.add(_variable(source, key_path, environ[name]))
        except UndecodableError:
            merged.problems.append(f"environment {name}: {dotted_path(key_path)}: expected JSON")
    _read_read_only_mode(environ, merged)


def _variable_path(name: str) -> tuple[str, ...]:
    """`GATEHOUSE__BACKENDS__MY_FILES__CWD` -> backends, my-files, cwd. Names below `env` keep their case."""
    parts = name[len(PREFIX) :].split("__")
    path = [part.lower() for part in parts]
    if path[0] in ("backends", "servers"):
        path[1:2] = [part.replace("_", "-") for part in path[1:2]]
    if path[0] == "backends" and path[2:3] in (["env"], ["env_file"]):
        path[3:] = parts[3:]
    return tuple(path)


def _variable(source: EnvSettingsSource, key_path: tuple[str, ...], text: str) -> Tree:
    if text == "null":
        return _nested(key_path, None)
    if key_path[0] == "backends" and key_path[2:3] == ("options",) and len(key_path) > 3:
        return _nested(key_path, _option(text))
    # One variable at a time, so that an error can name the variable, also for an unknown section.
    source.env_vars = {PREFIX.lower() + "__".join(key_path): text}
    return source() or _nested(key_path, text)


def _option(text: str) -> Any:
    """Decode booleans, lists and mappings. Other values stay strings: only the module knows the types of options."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if text in ("true", "false") or text.lstrip()[:1] in ("[", "{") else text


def _nested(key_path: tuple[str, ...], value: Any) -> Tree:
    for key in reversed(key_path):
        value = {key: value}
    return value


def _read_read_only_mode(environ: Mapping[str, str], merged: MergedValues) -> None:
    text = environ.get("READ_ONLY_MODE")
    if text is None:
        return
    read_only = parse_flag(text)
    if read_only is None:
        merged.problems.append("environment READ_ONLY_MODE: expected true or false")
    elif read_only:
        for tenant in merged.tree.get("tenants", {"default": None}):
            merged.add(_nested(("tenants", tenant, "read_only"), True))
