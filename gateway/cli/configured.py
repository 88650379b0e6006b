"""The settings as a command reads them."""

import sys
from collections.abc import Mapping
from pathlib import Path

from gateway.cli.failure import BAD_SETTINGS, Failure
from gateway.settings import Settings, SettingsError, load


def read_settings(config: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Raises `Failure` for settings that cannot be used."""
    try:
        return load(config, environ)
    except SettingsError as exc:
        raise Failure(*exc.lines, code=BAD_SETTINGS) from exc


def read_without_backends(config: Path | None) -> Settings:
    """For a command that opens no backend: what only backends need may be unset in this shell."""
    try:
        return load(config, bearing=True)
    except SettingsError as exc:
        raise Failure(*exc.lines, code=BAD_SETTINGS) from exc


def make_importable(settings: Settings) -> None:
    """The modules that settings name may lie beside their file or in the working folder."""
    # Last, so that no file there can stand in for an installed package.
    for folder in (settings.source.parent if settings.source else Path(), Path()):
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.append(place)
