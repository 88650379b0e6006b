"""Loads the settings from a file and the environment. Commands call `load`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from gateway.settings.environment import read_environment
from gateway.settings.error_messages import explain
from gateway.settings.file import read_file
from gateway.settings.merge import MergedValues, SettingsError
from gateway.settings.settings import Settings

FILE: Final = "gatehouse.yaml"


def load(
    path: Path | None = None, environ: Mapping[str, str] | None = None, *, allow_missing_variables: bool = False
) -> Settings:
    """The settings of `path`, else of `GATEHOUSE_CONFIG`, else of ./gatehouse.yaml if it exists, else the defaults.

    With `allow_missing_variables`, an unset variable in a backend's entry is not an error: the entry is reduced to its
    kind and target, and listed in `Settings.missing_variables`. For commands that serve no backends.
    """
    environ = os.environ if environ is None else environ
    merged = MergedValues()
    source = _locate(path, environ)
    if source is not None:
        read_file(source, environ, merged, allow_missing_variables=allow_missing_variables)
    read_environment(environ, merged)
    if merged.problems:
        raise SettingsError(*merged.problems)
    try:
        settings = Settings(**merged.tree)
    except ValidationError as exc:
        # Not chained: the original error may contain values.
        raise SettingsError(*(line for error in exc.errors() for line in explain(error, merged))) from None
    merged.tree.clear()  # keep only the origins, not the values
    return settings.with_source(source, merged, environ)


def _locate(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("GATEHOUSE_CONFIG"):
        return Path(named)
    return Path(FILE) if Path(FILE).exists() else None
