"""Loads the module of a `backends:` entry and creates its `LocalBackend`."""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, cast

from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from pydantic import ValidationError

from gateway.contract import Host, Json, Manifest, ModuleRoute
from gateway.contract.caller import SCOPES
from gateway.upstream.health import LoadError
from gateway.upstream.host import HostServices, ModuleHost
from gateway.upstream.local import LocalBackend

_SCOPE: Final = re.compile(r"[a-z0-9][a-z0-9:._/-]{0,99}")
OptionsReader = Callable[[Manifest], Json]
"""Returns the options of an entry, with the environment variables that its module declares. Raises `LoadError`."""


def load_module(
    namespace: str,
    module: str,
    attribute: str,
    options: OptionsReader,
    overrides: Mapping[str, Any],
    services: HostServices,
) -> LocalBackend:
    """Import the module, validate its options, and create its server. Raises `LoadError`."""
    server_or_factory, manifest, validated = import_backend(namespace, module, attribute, options)
    host = ModuleHost(
        namespace=namespace,
        options=validated,
        peers=services.peers(namespace, manifest.peer_noun),
        store_name=manifest.store or namespace,
        migrations=manifest.migrations,
        services=services,
    )
    server = _make_server(namespace, server_or_factory, host)
    _check_scopes(namespace, manifest, host.routes)
    return LocalBackend(namespace, server, apply_overrides(manifest, overrides), host.refusals, tuple(host.routes))


def import_backend(namespace: str, module: str, attribute: str, options: OptionsReader) -> tuple[Any, Manifest, Any]:
    """Return the module's server or server factory, its manifest, and its validated options. Raises `LoadError`."""
    imported, manifest = import_manifest(namespace, module)
    server: Any = getattr(imported, attribute, None)
    if server is None:
        raise LoadError(f"backends.{namespace}: {module} has no `{attribute}`")
    _check_server(namespace, server)
    return server, manifest, _options(namespace, manifest, options(manifest))


def import_manifest(namespace: str, module: str) -> tuple[ModuleType, Manifest]:
    """Return the module and its manifest. Raises `LoadError`."""
    try:
        imported = importlib.import_module(module)
    except Exception as exc:
        # An import may raise anything; it must end neither the gateway nor the settings watcher.
        raise LoadError(f"backends.{namespace}: {module} cannot be imported: {type(exc).__name__}: {exc}") from exc
    manifest = getattr(imported, "manifest", None)
    if not isinstance(manifest, Manifest):
        manifest = Manifest()
    for scope in manifest.scopes:
        if not _SCOPE.fullmatch(scope) or scope.startswith("mcp:"):
            raise LoadError(
                f"backends.{namespace}: {module} declares the scope {scope!r}, which is reserved or malformed"
            )
    return imported, manifest


def _options(namespace: str, manifest: Manifest, options: Json) -> Any:
    if manifest.options is None:
        if options:
            raise LoadError(f"backends.{namespace}.options: this module takes no options")
        return None
    try:
        return manifest.options.model_validate(options)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        location = ".".join(("options", *map(str, first["loc"])))
        raise LoadError(f"backends.{namespace}.{location}: {first['msg'].removeprefix('Value error, ')}") from exc


def _make_server(namespace: str, server: Any, host: Host) -> "Server[Any] | MCPServer[Any]":
    if callable(server) and not isinstance(server, Server | MCPServer):
        try:
            server = server(host)
        except Exception as exc:
            raise LoadError(f"backends.{namespace}: its server cannot be created: {exc}") from exc
    if isinstance(server, Server | MCPServer):
        return cast("Server[Any] | MCPServer[Any]", server)
    raise _not_a_server(namespace)


def _check_scopes(namespace: str, manifest: Manifest, routes: Iterable[ModuleRoute]) -> None:
    for route in routes:
        if route.scope not in manifest.scopes and route.scope not in SCOPES:
            raise LoadError(
                f"backends.{namespace}: the route {route.path} needs the scope {route.scope!r}, which is not declared"
            )


def _check_server(namespace: str, server: Any) -> None:
    if not callable(server) and not isinstance(server, Server | MCPServer):
        raise _not_a_server(namespace)


def _not_a_server(namespace: str) -> LoadError:
    return LoadError(f"backends.{namespace}: it must be an MCP server, or a function that returns one")


def apply_overrides(manifest: Manifest, overrides: Mapping[str, Any]) -> Manifest:
    """Apply the operator's settings to the manifest; the settings take precedence."""
    timeouts = {**manifest.timeouts, **overrides.get("timeouts", {})}
    if (default_timeout := overrides.get("timeout")) is not None:
        timeouts["*"] = default_timeout
    return replace(
        manifest,
        error_style=overrides.get("faults") or manifest.error_style,
        effect_overrides=overrides.get("effects", {}),
        trust=overrides.get("trust", manifest.trust),
        timeouts=timeouts,
        clean=manifest.clean if overrides.get("clean") is None else frozenset(overrides["clean"]),
        result_bytes={**manifest.result_bytes, **overrides.get("max_result_bytes", {})},
        media_types=manifest.media_types if overrides.get("media_types") is None else overrides["media_types"],
    )
