"""From an entry of `backends:` to a running in-process backend."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from pydantic import ValidationError

from gateway.contract import Host, Json, Manifest
from gateway.upstream.health import LoadError
from gateway.upstream.host import HostServices, ModuleHost
from gateway.upstream.local import LocalBackend


def load_module(
    namespace: str, module: str, attribute: str, options: Json, overrides: Mapping[str, Any], house: HostServices
) -> LocalBackend:
    """Import it, check its options, and make its server. Raises `LoadError`."""
    thing, manifest, checked = imported(namespace, module, attribute, options)
    home = ModuleHost(
        namespace=namespace,
        options=checked,
        bridge=house.bridge(namespace),
        store_name=manifest.store or namespace,
        migrations=manifest.migrations,
        services=house,
    )
    server = _server(namespace, thing, home)
    return LocalBackend(namespace, server, overridden(manifest, overrides), home.refusals)


def imported(namespace: str, module: str, attribute: str, options: Json) -> tuple[Any, Manifest, Any]:
    """What the module has under that name, what it says of itself, and its options, checked. Raises `LoadError`."""
    try:
        found = importlib.import_module(module)
    except Exception as exc:
        # A module may fail in any way while it is imported; none may end the gateway, or the watch over its settings.
        raise LoadError(f"backends.{namespace}: {module} cannot be imported: {type(exc).__name__}: {exc}") from exc
    thing: Any = getattr(found, attribute, None)
    if thing is None:
        raise LoadError(f"backends.{namespace}: {module} has no `{attribute}`")
    _judge_kind(namespace, thing)
    manifest = getattr(found, "manifest", None)
    if not isinstance(manifest, Manifest):
        manifest = Manifest()
    return thing, manifest, _options(namespace, manifest, options)


def _options(namespace: str, manifest: Manifest, given: Json) -> Any:
    if manifest.options is None:
        if given:
            raise LoadError(f"backends.{namespace}.options: this module takes none")
        return None
    try:
        return manifest.options.model_validate(given)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(("options", *map(str, first["loc"])))
        raise LoadError(f"backends.{namespace}.{where}: {first['msg'].removeprefix('Value error, ')}") from exc


def _server(namespace: str, thing: Any, home: Host) -> "Server[Any] | MCPServer[Any]":
    if callable(thing) and not isinstance(thing, Server | MCPServer):
        try:
            thing = thing(home)
        except Exception as exc:
            raise LoadError(f"backends.{namespace}: it cannot be made: {exc}") from exc
    if isinstance(thing, Server | MCPServer):
        return cast("Server[Any] | MCPServer[Any]", thing)
    raise _no_server(namespace)


def _judge_kind(namespace: str, thing: Any) -> None:
    if not callable(thing) and not isinstance(thing, Server | MCPServer):
        raise _no_server(namespace)


def _no_server(namespace: str) -> LoadError:
    return LoadError(f"backends.{namespace}: it must be an MCP server, or a function that makes one")


def overridden(manifest: Manifest, overrides: Mapping[str, Any]) -> Manifest:
    """What the operator says wins over what the module says of itself."""
    timeouts = {**manifest.timeouts, **overrides.get("timeouts", {})}
    if (every := overrides.get("timeout")) is not None:
        timeouts["*"] = every
    return replace(
        manifest,
        error_style=overrides.get("faults") or manifest.error_style,
        effects={**manifest.effects, **overrides.get("effects", {})},
        timeouts=timeouts,
        clean=manifest.clean if overrides.get("clean") is None else frozenset(overrides["clean"]),
        result_bytes={**manifest.result_bytes, **overrides.get("max_result_bytes", {})},
        media_types=manifest.media_types if overrides.get("media_types") is None else overrides["media_types"],
    )
