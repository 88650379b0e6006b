"""From a file and the environment to settings."""

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


def load(path: Path | None = None, environ: Mapping[str, str] | None = None, *, bearing: bool = False) -> Settings:
    """The settings of `path`, else of `GATEHOUSE_CONFIG`, else of ./gatehouse.yaml if it exists, else the defaults.

    With `bearing`, a variable that only a backend needs and that is not set is borne: the entry is then read as its
    kind and target alone, and named in `absent`. For whoever serves no backends.
    """
    environ = os.environ if environ is None else environ
    gathered = MergedValues()
    source = _locate(path, environ)
    if source is not None:
        read_file(source, environ, gathered, bearing=bearing)
    read_environment(environ, gathered)
    if gathered.problems:
        raise SettingsError(*gathered.problems)
    try:
        settings = Settings(**gathered.tree)
    except ValidationError as exc:
        # Not chained: the original may show values.
        raise SettingsError(*(line for error in exc.errors() for line in explain(error, gathered))) from None
    gathered.tree.clear()  # what is kept of it is where things stand, not what they are
    return settings.read_from(source, gathered)


def _locate(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    if path is not None:
        return path
    if named := environ.get("GATEHOUSE_CONFIG"):
        return Path(named)
    return Path(FILE) if Path(FILE).exists() else None
