"""The backends that are served, and how another set takes their place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gateway.catalogue.catalogue import Endpoint
from gateway.contract import Backend, Call, Json, Manifest
from gateway.errors import Fault
from gateway.parts.judged import judge_files
from gateway.parts.remotes import remote_backend
from gateway.settings import CommandBackend, ModuleBackend, Settings, UrlBackend
from gateway.upstream.health import Health
from gateway.upstream.home import HostServices
from gateway.upstream.load import load_module, overridden
from gateway.upstream.local import LocalBackend
from gateway.upstream.refusal import LoadError
from gateway.upstream.remote import RemoteBackend
from gateway.upstream.stdio.watchdog import Watchdog

OVERRIDES: Final = {"effects", "timeouts", "timeout", "faults", "clean", "max_result_bytes", "media_types"}
"""What an entry of `backends:` may say in place of the manifest."""

Entry = ModuleBackend | UrlBackend | CommandBackend
Made = LocalBackend | RemoteBackend


@dataclass(frozen=True, slots=True)
class Swap:
    """What one change of settings brought."""

    made: Mapping[str, tuple[Made, str]]
    """New ones, opened, by namespace; each with its origin, which tells it from another that had its name before."""
    dropped: Sequence[str]
    """Namespaces that are served no more."""
    retired: Sequence[Made]
    """To be closed once nobody is sent to them any more."""


class Backends:
    """All that are served now."""

    def __init__(self, settings: Settings, house: HostServices, info: Json) -> None:
        self._settings = settings
        self._house = house
        self._info = info
        self._served: dict[str, tuple[Entry, Made]] = {}
        self._watchdog = Watchdog()

    def get(self, namespace: str) -> Backend | None:
        served = self._served.get(namespace)
        return served[1] if served else None

    def healths(self) -> dict[str, Health]:
        return {namespace: backend.health() for namespace, (_, backend) in self._served.items()}

    async def change(self, settings: Settings) -> Swap:
        """Open what is new and stop naming what is gone. Raises `LoadError`, changing nothing."""
        wanted = {ns: entry for ns, entry in settings.backends.items() if entry.enabled}
        fresh = {ns: entry for ns, entry in wanted.items() if self._served.get(ns, (None,))[0] != entry}
        made = {ns: (entry, self._load(ns, entry)) for ns, entry in fresh.items()}
        await _open_all([(ns, backend) for ns, (_, backend) in made.items()])
        stale = [ns for ns in self._served if ns in made or ns not in wanted]
        retired = [self._served.pop(ns)[1] for ns in stale]
        self._served |= made
        named = {ns: (backend, _origin(entry)) for ns, (entry, backend) in made.items()}
        return Swap(named, [ns for ns in stale if ns not in made], retired)

    async def close(self) -> None:
        for _, backend in self._served.values():
            await backend.close()
        self._watchdog.close()

    def _load(self, namespace: str, entry: Entry) -> Made:
        overrides = entry.model_dump(include=OVERRIDES)
        if isinstance(entry, ModuleBackend):
            module, attribute = entry.target
            backend = load_module(namespace, module, attribute, entry.options, overrides, self._house)
            judge_files(self._settings, namespace, backend.manifest)
            return backend
        return remote_backend(
            namespace,
            entry,
            overridden(Manifest(), overrides),
            info=self._info,
            max_bytes=self._settings.calls.max_result_bytes,
            watchdog=self._watchdog,
        )


def refused(call: Call, fault: Fault) -> None:
    """A module may keep records of its own, also of the calls that never reached it."""
    route = call.resolved_route
    if route is not None and isinstance(backend := route.backend, LocalBackend):
        backend.refused(call, route, fault)


def endpoints(settings: Settings) -> dict[str, Endpoint]:
    """Every address below `/mcp`, and what it shows."""
    found = {"/mcp": Endpoint("/mcp", "underscore")}
    for namespace in settings.backends:
        found[f"/mcp/{namespace}"] = Endpoint(f"/mcp/{namespace}", "bare", (namespace,))
    for name, server in settings.servers.items():
        found[f"/mcp/{name}"] = Endpoint(f"/mcp/{name}", server.names, server.backends, name)
    return found


async def _open_all(backends: Sequence[tuple[str, Made]]) -> None:
    """All of them or none: what cannot be opened changes nothing."""
    opened: list[Made] = []
    try:
        for namespace, backend in backends:
            await _opened(namespace, backend)
            opened.append(backend)
    except LoadError:
        for backend in opened:
            await backend.close()
        raise


async def _opened(namespace: str, backend: Made) -> None:
    try:
        await backend.open()
    except Exception as exc:
        # A server's own lifespan may fail in any way.
        raise LoadError(f"backends.{namespace}: it cannot be started: {exc}") from exc


def _origin(entry: Entry) -> str:
    """What was remembered of one server does not hold for another of its name."""
    said = entry.model_dump_json(include={"module", "url", "transport", "command", "args", "cwd", "isolation"})
    return sha256(said.encode()).hexdigest()
