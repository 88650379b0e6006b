"""Loads the settings for commands, and derives from them the URLs of the MCP endpoint and of the operator API."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.cli.failure import BAD_SETTINGS, CommandError
from gateway.settings import Settings, SettingsError, http_address, load

WILDCARD_HOSTS: Final = ("0.0.0.0", "::")  # noqa: S104


def read_settings(config: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Raises `CommandError` for settings that cannot be used."""
    try:
        return load(config, environ)
    except SettingsError as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc


def read_settings_leniently(config: Path | None) -> Settings:
    """Read the settings for a command that opens no backend: variables that only backends need may be unset."""
    try:
        return load(config, allow_missing_variables=True)
    except SettingsError as exc:
        raise CommandError(*exc.lines, code=BAD_SETTINGS) from exc


def endpoint_url(config: Path | None) -> str:
    """The URL of the MCP endpoint. Raises `CommandError` if the settings do not determine it."""
    server = read_settings_leniently(config).server
    if server.port == 0 and "public_url" not in server.model_fields_set:
        raise CommandError("server.port is 0, so the port is not known; give --url", code=2)
    if server.host in WILDCARD_HOSTS and "public_url" not in server.model_fields_set:
        # A wildcard address is not a destination; the loopback address is.
        return f"{http_address('127.0.0.1' if server.host == '0.0.0.0' else '::1', server.port)}/mcp"  # noqa: S104
    return f"{server.public_url}/mcp"


def add_module_paths(settings: Settings) -> None:
    """Make modules importable from the folder of the settings file and from the working folder."""
    # Appended last, so that no file there shadows an installed package.
    for folder in (settings.source.parent if settings.source else Path(), Path()):
        if (path := str(folder.resolve())) not in sys.path:
            sys.path.append(path)


OPS_PORT_HINT: Final = "with server.ops_port set, the API is only on that port: give its URL with --url"


def api_url(url: str | None, config: Path | None) -> str:
    """The base URL of the operator API of the gateway at `url`; without `url`, of the gateway of these settings.

    With `server.ops_port` the API is only on that port, which is found if these are the settings of that gateway.
    """
    if url is None:
        server = read_settings_leniently(config).server
        return http_address(server.host, server.port if server.ops_port is None else server.ops_port)
    base = url.rstrip("/").partition("/mcp")[0].rstrip("/")
    try:
        settings = read_settings_leniently(config)
    except CommandError:
        return base  # the settings belong to another gateway
    return _api_url_of(settings, base)


def _api_url_of(settings: Settings, base: str) -> str:
    server = settings.server
    if server.ops_port is None:
        return base
    if base == server.public_url:
        return server.operators_url(server.public_url)
    local = {http_address(host, server.port) for host in (server.host, "127.0.0.1", "localhost")}
    return http_address(server.host, server.ops_port) if base in local else base
