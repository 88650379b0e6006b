"""The settings as a command reads them.

Where the operator's API of a running gateway is.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.cli.failure import BAD_SETTINGS, CommandError
from gateway.settings import Settings, SettingsError, http_address, load

EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104


def read_settings(config: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Raises `Failure` for settings that cannot be used."""
    try:
        return load(config, environ)
    except SettingsError as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc


def read_without_backends(config: Path | None) -> Settings:
    """For a command that opens no backend: what only backends need may be unset in this shell."""
    try:
        return load(config, bearing=True)
    except SettingsError as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc


def endpoint(config: Path | None) -> str:
    """Where a gateway of these settings serves MCP. Raises `Failure` where only it knows."""
    server = read_without_backends(config).server
    if server.port == 0 and "public_url" not in server.model_fields_set:
        raise CommandError("server.port is 0: where it listens is known once it runs; give --url", code=2)
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


ELSEWHERE: Final = "where server.ops_port is set it is on that port alone: give its address with --url"


def api_address(url: str | None, config: Path | None) -> str:
    """The API of the gateway whose MCP endpoint or address `url` is; without one, of the gateway of these settings.

    With `server.ops_port` the API is on that port alone: it is found where these are that gateway's settings.
    """
    if url is None:
        server = read_without_backends(config).server
        return http_address(server.host, server.port if server.ops_port is None else server.ops_port)
    base = url.rstrip("/").partition("/mcp")[0].rstrip("/")
    try:
        settings = read_without_backends(config)
    except CommandError:
        return base  # they are about another gateway, or about none
    return _of(settings, base)


def _of(settings: Settings, base: str) -> str:
    server = settings.server
    if server.ops_port is None:
        return base
    if base == server.public_url:
        return server.operators_url(server.public_url)
    here = {http_address(host, server.port) for host in (server.host, "127.0.0.1", "localhost")}
    return http_address(server.host, server.ops_port) if base in here else base
