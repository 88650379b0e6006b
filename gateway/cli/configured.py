"""The settings as a command reads them."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.cli.failure import BAD_SETTINGS, Failure
from gateway.settings import Settings, SettingsError, http_address, load

EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104


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


def endpoint(config: Path | None) -> str:
    """Where a gateway of these settings serves MCP. Raises `Failure` where only it knows."""
    server = read_without_backends(config).server
    if server.port == 0 and "public_url" not in server.model_fields_set:
        raise Failure("server.port is 0: where it listens is known once it runs; give --url", code=2)
    if server.host in EVERYWHERE and "public_url" not in server.model_fields_set:
        # Nobody can be reached there; on this machine the loopback is one of its addresses.
        return f"{http_address('127.0.0.1' if server.host == '0.0.0.0' else '::1', server.port)}/mcp"  # noqa: S104
    return f"{server.public_url}/mcp"


def make_importable(settings: Settings) -> None:
    """The modules that settings name may lie beside their file or in the working folder."""
    # Last, so that no file there can stand in for an installed package.
    for folder in (settings.source.parent if settings.source else Path(), Path()):
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.append(place)
