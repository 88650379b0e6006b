"""From an entry of `backends:` with a url or a command to a backend.

Which backends could not be served: the judgements that a start makes, with nothing opened.

The backends that are served, and how another set takes their place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pydantic import SecretStr

from gateway.auth.client_key import ClientKey
from gateway.catalogue.catalogue import McpEndpointConfig
from gateway.contract import Backend, Call, Json, Manifest
from gateway.errors import Fault
from gateway.outbound import client as outbound_client
from gateway.settings import BackendEntry, CommandBackend, ModuleBackend, Settings, UrlBackend
from gateway.upstream.bulkhead import Capacity
from gateway.upstream.health import UpstreamHealth, LoadError
from gateway.upstream.host import HostServices
from gateway.upstream.http.credentials import ClientCredentials, ClientCredentialsGrant
from gateway.upstream.http.transport import HttpTransport, http_head, http_link
from gateway.upstream.local import LocalBackend
from gateway.upstream.module_loader import imported, load_module, overridden
from gateway.upstream.remote import RemoteBackend
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.upstream.stdio.process import ChildProgram, ProcessBounds
from gateway.upstream.stdio.transport import StdioTransport


def remote_backend(
    namespace: str,
    entry: UrlBackend | CommandBackend,
    manifest: Manifest,
    *,
    info: Json,
    max_bytes: int,
    watchdog: OrphanReaper,
) -> RemoteBackend:
    """Raises `LoadError` for an entry that cannot be served."""
    room = Capacity(entry.max_calls, entry.per_tenant, entry.max_waiting)
    if isinstance(entry, CommandBackend):
        return RemoteBackend(namespace, manifest, _process(namespace, entry, info, watchdog), info, room)
    return RemoteBackend(namespace, manifest, _server(namespace, entry, info, max_bytes), info, room)


def judge_remote(namespace: str, entry: UrlBackend | CommandBackend) -> None:
    """Whether it could be made, with nothing opened. Raises the same `LoadError`."""
    if isinstance(entry, UrlBackend):
        http_head(namespace, entry.url, _headers(entry), allow_private=entry.allow_private)
        if entry.oauth is not None and entry.oauth.client_key is not None:
            _key(namespace, entry.oauth.client_id, entry.oauth.client_key)


def _process(namespace: str, entry: CommandBackend, info: Json, watchdog: OrphanReaper) -> StdioTransport:
    program = ChildProgram(
        namespace=namespace,
        command=entry.command,
        args=entry.args,
        env={name: value.get_secret_value() for name, value in entry.env.items()},
        cwd=entry.cwd,
        bounds=ProcessBounds(**entry.limits.model_dump()),
        watchdog=watchdog,
    )
    return StdioTransport(program, entry.isolation, info, entry.max_processes)


def _server(namespace: str, entry: UrlBackend, info: Json, max_bytes: int) -> HttpTransport:
    return http_link(
        namespace,
        entry.url,
        _headers(entry),
        only_sse=entry.transport == "sse",
        allow_private=entry.allow_private,
        max_bytes=max_bytes,
        info=info,
        credential=_credential(namespace, entry),
    )


def _headers(entry: UrlBackend) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in entry.headers.items()}


def _credential(namespace: str, entry: UrlBackend) -> ClientCredentials | None:
    oauth = entry.oauth
    if oauth is None:
        return None
    grant = ClientCredentialsGrant(
        client_id=oauth.client_id,
        client_secret=None if oauth.client_secret is None else oauth.client_secret.get_secret_value,
        assertion=None if oauth.client_key is None else _key(namespace, oauth.client_id, oauth.client_key).assertion,
        token_url=oauth.token_url,
        issuer=oauth.issuer,
        scope=oauth.scope,
        resource=entry.url if oauth.resource is None else oauth.resource or None,
        method=oauth.method,
    )
    return ClientCredentials(namespace, grant, outbound_client(allow_private=entry.allow_private))


def _key(namespace: str, client_id: str, key: SecretStr) -> ClientKey:
    try:
        return ClientKey(client_id, key.get_secret_value())
    except ValueError as exc:
        # The cause could quote the key.
        raise LoadError(f"backends.{namespace}.oauth.client_key: {exc}") from None


def backend_refusals(settings: Settings) -> Iterator[LoadError]:
    """One for each that is enabled and cannot be served."""
    for namespace, entry in settings.backends.items():
        if entry.enabled:
            try:
                judge(settings, namespace, entry)
            except LoadError as exc:
                yield exc


def judge(settings: Settings, namespace: str, entry: BackendEntry) -> None:
    """Raises `LoadError` for an entry that a gateway would refuse. A module is imported, but not made."""
    if isinstance(entry, ModuleBackend):
        _, manifest, _ = imported(namespace, *entry.target, entry.options)
        judge_files(settings, namespace, manifest)
    else:
        judge_remote(namespace, entry)


def judge_files(settings: Settings, namespace: str, manifest: Manifest) -> None:
    """Raises `LoadError` for a module that works on files where not every process sees the same ones."""
    if manifest.executor and settings.bus.url is not None and not settings.files_shared:
        raise LoadError(
            f"backends.{namespace}: it works on files, which every process must see:"
            " make files_dir one shared volume and set files_shared: true, or serve it without bus.url"
        )


OVERRIDES: Final = {"effects", "timeouts", "timeout", "faults", "clean", "max_result_bytes", "media_types"}

"""What an entry of `backends:` may say in place of the manifest."""

Entry = ModuleBackend | UrlBackend | CommandBackend

Made = LocalBackend | RemoteBackend


@dataclass(frozen=True, slots=True)
class BackendSwap:
    """What one change of settings brought."""

    made: Mapping[str, tuple[Made, str]]
    """New ones, opened, by namespace; each with its origin, which tells it from another that had its name before."""
    dropped: Sequence[str]
    """Namespaces that are served no more."""
    retired: Sequence[Made]
    """To be closed once nobody is sent to them any more."""


class ServedBackends:
    """All that are served now."""

    def __init__(self, settings: Settings, house: HostServices, info: Json) -> None:
        self._settings = settings
        self._house = house
        self._info = info
        self._served: dict[str, tuple[Entry, Made]] = {}
        self._watchdog = OrphanReaper()

    def get(self, namespace: str) -> Backend | None:
        served = self._served.get(namespace)
        return served[1] if served else None

    def healths(self) -> dict[str, UpstreamHealth]:
        return {namespace: backend.health() for namespace, (_, backend) in self._served.items()}

    async def change(self, settings: Settings) -> BackendSwap:
        """Open what is new and stop naming what is gone. Raises `LoadError`, changing nothing."""
        wanted = {ns: entry for ns, entry in settings.backends.items() if entry.enabled}
        fresh = {ns: entry for ns, entry in wanted.items() if self._served.get(ns, (None,))[0] != entry}
        made = {ns: (entry, self._load(ns, entry)) for ns, entry in fresh.items()}
        await _open_all([(ns, backend) for ns, (_, backend) in made.items()])
        stale = [ns for ns in self._served if ns in made or ns not in wanted]
        retired = [self._served.pop(ns)[1] for ns in stale]
        self._served |= made
        named = {ns: (backend, _origin(entry)) for ns, (entry, backend) in made.items()}
        return BackendSwap(named, [ns for ns in stale if ns not in made], retired)

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


def endpoints(settings: Settings) -> dict[str, McpEndpointConfig]:
    """Every address below `/mcp`, and what it shows."""
    found = {"/mcp": McpEndpointConfig("/mcp", "underscore")}
    for namespace in settings.backends:
        found[f"/mcp/{namespace}"] = McpEndpointConfig(f"/mcp/{namespace}", "bare", (namespace,))
    for name, server in settings.servers.items():
        found[f"/mcp/{name}"] = McpEndpointConfig(f"/mcp/{name}", server.names, server.backends, name)
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
