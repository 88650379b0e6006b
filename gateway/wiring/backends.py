"""Builds backends from the entries of `backends:`, replaces them when the settings change, and checks entries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from gateway.auth.client_key import ClientKey
from gateway.catalogue.catalogue import McpEndpointConfig
from gateway.catalogue.list_format import ToolPresentation
from gateway.contract import Backend, Call, Json, Manifest, ModuleRoute
from gateway.edge.module_routes import find_route_problem
from gateway.errors import Fault, Kind
from gateway.outbound import DIRECT, OutboundRoute
from gateway.outbound import create_client as outbound_client
from gateway.settings import (
    BackendEntry,
    CommandBackend,
    ModuleBackend,
    OpenApiBackend,
    OperationPatterns,
    Settings,
    UrlBackend,
)
from gateway.upstream.account_access import AccountAccess
from gateway.upstream.bulkhead import Capacity
from gateway.upstream.health import LoadError, UpstreamHealth
from gateway.upstream.host import HostServices
from gateway.upstream.http.credentials import ClientCredentials, ClientCredentialsGrant
from gateway.upstream.http.transport import HttpTransport, build_http_transport, build_request_head, load_tls
from gateway.upstream.local import LocalBackend
from gateway.upstream.module_loader import apply_overrides, import_backend, import_manifest, load_module
from gateway.upstream.remote import RemoteBackend
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.upstream.stdio.process import ChildProgram, ProcessBounds
from gateway.upstream.stdio.transport import StdioTransport
from gateway.wiring.shapes import build_shape, without_shape

if TYPE_CHECKING:
    from gateway.upstream.openapi.operations import OperationFilter

RemoteEntry = UrlBackend | OpenApiBackend | CommandBackend


def remote_backend(
    namespace: str,
    entry: RemoteEntry,
    manifest: Manifest,
    *,
    info: Json,
    max_bytes: int,
    orphan_reaper: OrphanReaper,
    accounts: AccountAccess | None = None,
    route: OutboundRoute = DIRECT,
) -> RemoteBackend:
    """Build a backend with a url, an API or a command. Raises `LoadError` for an entry that cannot be served."""
    capacity = Capacity(entry.max_calls, entry.per_tenant, entry.max_waiting)
    if isinstance(entry, CommandBackend):
        return RemoteBackend(
            namespace, manifest, _stdio_transport(namespace, entry, info, orphan_reaper), info, capacity
        )
    if isinstance(entry, OpenApiBackend):
        # Imported here: most gateways serve no REST API.
        from gateway.upstream.openapi.backend import build_api_backend

        return build_api_backend(
            namespace,
            manifest,
            entry.document_url or Path(entry.openapi),
            entry.url,
            _headers(entry),
            include=_filter(entry.include),
            exclude=_filter(entry.exclude),
            allow_private=entry.allow_private,
            max_bytes=max_bytes,
            info=info,
            capacity=capacity,
            credential=_credential(namespace, entry, route),
            route=route,
            ca_file=entry.ca_file,
        )
    transport = _http_transport(namespace, entry, info, max_bytes, accounts, route)
    return RemoteBackend(namespace, manifest, transport, info, capacity, accounts=accounts)


def _filter(patterns: OperationPatterns) -> "OperationFilter":
    from gateway.upstream.openapi.operations import OperationFilter

    return OperationFilter(patterns.tags, patterns.paths, patterns.operations)


def check_remote(namespace: str, entry: RemoteEntry) -> None:
    """Raise the `LoadError` of `remote_backend` without opening anything."""
    if isinstance(entry, OpenApiBackend):
        from gateway.upstream.openapi.backend import build_api_head, parse_document_url

        build_api_head(namespace, entry.url, _headers(entry), allow_private=entry.allow_private)
        if entry.document_url is not None:
            parse_document_url(namespace, entry.document_url, allow_private=entry.allow_private)
    elif isinstance(entry, UrlBackend):
        build_request_head(namespace, entry.url, _headers(entry), allow_private=entry.allow_private)
    if isinstance(entry, CommandBackend):
        return
    if entry.ca_file is not None:
        load_tls(namespace, DIRECT, entry.ca_file)
    if entry.oauth is not None and entry.oauth.client_key is not None:
        _load_client_key(namespace, entry.oauth.client_id, entry.oauth.client_key)


def _stdio_transport(namespace: str, entry: CommandBackend, info: Json, orphan_reaper: OrphanReaper) -> StdioTransport:
    program = ChildProgram(
        namespace=namespace,
        command=entry.command,
        args=entry.args,
        env={name: value.get_secret_value() for name, value in entry.env.items()},
        cwd=entry.cwd,
        bounds=ProcessBounds(**entry.limits.model_dump()),
        reaper=orphan_reaper,
    )
    return StdioTransport(program, entry.isolation, info, entry.max_processes)


def _http_transport(
    namespace: str,
    entry: UrlBackend,
    info: Json,
    max_bytes: int,
    accounts: AccountAccess | None,
    route: OutboundRoute,
) -> HttpTransport:
    return build_http_transport(
        namespace,
        entry.url,
        _headers(entry),
        only_sse=entry.transport == "sse",
        allow_private=entry.allow_private,
        max_bytes=max_bytes,
        info=info,
        credential=_credential(namespace, entry, route),
        accounts=accounts,
        route=route,
        ca_file=entry.ca_file,
    )


def _headers(entry: UrlBackend | OpenApiBackend) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in entry.headers.items()}


def _credential(namespace: str, entry: UrlBackend | OpenApiBackend, route: OutboundRoute) -> ClientCredentials | None:
    oauth = entry.oauth
    if oauth is None:
        return None
    assertion = None
    if oauth.client_key is not None:
        assertion = _load_client_key(namespace, oauth.client_id, oauth.client_key).sign_assertion
    identity = partial(_read_identity_token, namespace, oauth.assertion_file)
    if oauth.assertion_file is not None and oauth.assertion_use == "client":
        assertion = identity
    grant = ClientCredentialsGrant(
        client_id=oauth.client_id,
        client_secret=None if oauth.client_secret is None else oauth.client_secret.get_secret_value,
        assertion=assertion,
        jwt_bearer=identity if oauth.assertion_file is not None and oauth.assertion_use == "grant" else None,
        token_url=oauth.token_url,
        issuer=oauth.issuer,
        scope=oauth.scope,
        resource=entry.url if oauth.resource is None else oauth.resource or None,
        method=oauth.method,
    )
    tls = load_tls(namespace, route, entry.ca_file)
    return ClientCredentials(
        namespace, grant, outbound_client(allow_private=entry.allow_private, route=route, verify=tls)
    )


def _read_identity_token(namespace: str, file: Path | None, audience: str = "") -> str:
    """Read at each use: the platform replaces the file before the token expires. Its audience is configured there."""
    assert file is not None
    try:
        return file.read_text("utf-8").strip()
    except OSError as exc:
        raise Fault(Kind.UNAVAILABLE, f"The identity token for {namespace} cannot be read.") from exc


def _load_client_key(namespace: str, client_id: str, key: SecretStr) -> ClientKey:
    try:
        return ClientKey(client_id, key.get_secret_value())
    except ValueError as exc:
        # The cause is dropped: it could quote the key.
        raise LoadError(f"backends.{namespace}.oauth.client_key: {exc}") from None


def find_load_errors(settings: Settings) -> Iterator[LoadError]:
    """Yield the error of each enabled backend that cannot be served."""
    for namespace, entry in settings.backends.items():
        if entry.enabled:
            try:
                check_backend(settings, namespace, entry)
            except LoadError as exc:
                yield exc


def check_backend(settings: Settings, namespace: str, entry: BackendEntry) -> None:
    """Raise `LoadError` for an entry that cannot be served. A module is imported, but its server is not built."""
    if isinstance(entry, ModuleBackend):
        _, manifest, _ = import_backend(namespace, *entry.target, _options_reader(settings, namespace, entry))
        check_shared_files(settings, namespace, manifest)
    else:
        check_remote(namespace, entry)


def module_scopes(settings: Settings) -> dict[str, tuple[str, str]]:
    """Scopes of the enabled modules: description and namespace. Modules that cannot be imported are left out."""
    manifests: dict[str, Manifest] = {}
    for namespace, entry in settings.backends.items():
        if entry.enabled and isinstance(entry, ModuleBackend):
            with suppress(LoadError):
                manifests[namespace] = import_manifest(namespace, entry.target[0])[1]
    return _scopes(manifests)


def _scopes(manifests: Mapping[str, Manifest]) -> dict[str, tuple[str, str]]:
    return {
        scope: (description, namespace)
        for namespace, manifest in manifests.items()
        for scope, description in manifest.scopes.items()
    }


def _options_reader(settings: Settings, namespace: str, entry: ModuleBackend) -> Callable[[Manifest], Json]:
    def read(manifest: Manifest) -> Json:
        if manifest.options is None or namespace != entry.target[0].rpartition(".")[2]:
            return entry.options
        flags = {name for name, each in manifest.options.model_fields.items() if each.annotation is bool}
        try:
            return settings.options_with_aliases(namespace, entry.options, manifest.environment, flags)
        except ValueError as exc:
            raise LoadError(str(exc)) from exc

    return read


def check_shared_files(settings: Settings, namespace: str, manifest: Manifest) -> None:
    """Raise `LoadError` for a module that works on local files if several processes do not share them."""
    if manifest.executor and settings.bus.url is not None and not settings.files_shared:
        raise LoadError(
            f"backends.{namespace}: this module works on local files, which all processes must share:"
            " put files_dir on a shared volume and set files_shared: true, or remove bus.url"
        )


OVERRIDES: Final = {"effects", "trust", "timeouts", "timeout", "faults", "clean", "max_result_bytes", "media_types"}
"""Keys of an entry that override the manifest."""
Entry = ModuleBackend | RemoteEntry
ServedBackend = LocalBackend | RemoteBackend


@dataclass(frozen=True, slots=True)
class BackendSwap:
    """Result of applying new settings to the backends."""

    added: Mapping[str, tuple[ServedBackend, str]]
    """New backends by namespace, opened; each with its origin, which differs from that of a predecessor."""
    removed: Sequence[str]
    """Namespaces that are no longer served."""
    retired: Sequence[ServedBackend]
    """Backends to close once no route refers to them."""


class ServedBackends:
    """The backends that are served now."""

    def __init__(
        self,
        settings: Settings,
        services: HostServices,
        info: Json,
        accounts: Callable[[str, UrlBackend], AccountAccess | None] = lambda namespace, entry: None,
        route: OutboundRoute = DIRECT,
    ) -> None:
        """`accounts` opens the accounts of a backend that has them."""
        self._accounts = accounts
        self._route = route
        self._settings = settings
        self._services = services
        self._info = info
        self._served: dict[str, tuple[Entry, ServedBackend]] = {}
        self._orphan_reaper = OrphanReaper()

    def get(self, namespace: str) -> Backend | None:
        served = self._served.get(namespace)
        return served[1] if served else None

    def health(self) -> dict[str, UpstreamHealth]:
        return {namespace: backend.health() for namespace, (_, backend) in self._served.items()}

    def routes(self) -> dict[str, Sequence[ModuleRoute]]:
        """The HTTP and WebSocket routes of the modules, by namespace."""
        return {ns: _routes(backend) for ns, (_, backend) in self._served.items()}

    def scopes(self) -> dict[str, tuple[str, str]]:
        """The scopes of the modules: description and namespace of each."""
        return _scopes({ns: backend.manifest for ns, (_, backend) in self._served.items()})

    async def apply(self, settings: Settings) -> BackendSwap:
        """Open new and changed backends and drop removed ones. Raises `LoadError` and changes nothing on failure."""
        # A change of the shape alone does not restart a backend: the catalogue applies it.
        wanted = {ns: without_shape(entry) for ns, entry in settings.backends.items() if entry.enabled}
        fresh = {ns: entry for ns, entry in wanted.items() if self._served.get(ns, (None,))[0] != entry}
        made = {ns: (entry, self._load(settings, ns, entry)) for ns, entry in fresh.items()}
        _check_routes({ns: (made.get(ns) or self._served[ns])[1] for ns in wanted})
        await _open_all([(ns, backend) for ns, (_, backend) in made.items()])
        stale = [ns for ns in self._served if ns in made or ns not in wanted]
        retired = [self._served.pop(ns)[1] for ns in stale]
        self._served |= made
        named = {ns: (backend, origin_of(entry)) for ns, (entry, backend) in made.items()}
        return BackendSwap(named, [ns for ns in stale if ns not in made], retired)

    async def close(self) -> None:
        for _, backend in self._served.values():
            await backend.close()
        self._orphan_reaper.close()

    def _load(self, settings: Settings, namespace: str, entry: Entry) -> ServedBackend:
        overrides = entry.model_dump(include=OVERRIDES)
        if isinstance(entry, ModuleBackend):
            backend = load_module_entry(settings, namespace, entry, self._services)
            check_shared_files(self._settings, namespace, backend.manifest)
            return backend
        return remote_backend(
            namespace,
            entry,
            apply_overrides(Manifest(), overrides),
            info=self._info,
            max_bytes=self._settings.calls.max_result_bytes,
            orphan_reaper=self._orphan_reaper,
            accounts=self._accounts(namespace, entry) if isinstance(entry, UrlBackend) else None,
            route=self._route,
        )


def load_module_entry(settings: Settings, namespace: str, entry: ModuleBackend, services: HostServices) -> LocalBackend:
    """Import a module and create its server. Raises `LoadError`."""
    module, attribute = entry.target
    options = _options_reader(settings, namespace, entry)
    return load_module(namespace, module, attribute, options, entry.model_dump(include=OVERRIDES), services)


def _routes(backend: ServedBackend) -> Sequence[ModuleRoute]:
    return backend.routes if isinstance(backend, LocalBackend) else ()


def _check_routes(backends: Mapping[str, ServedBackend]) -> None:
    problem = find_route_problem({namespace: _routes(backend) for namespace, backend in backends.items()})
    if problem is not None:
        raise LoadError(f"backends.{problem[0]}: {problem[1]}")


def report_refusal(call: Call, fault: Fault) -> None:
    """Report a rejected call to its module, which may audit calls that never reached it."""
    route = call.resolved_route
    if route is not None and isinstance(backend := route.backend, LocalBackend):
        backend.report_refusal(call, route, fault)


def endpoints(settings: Settings) -> dict[str, McpEndpointConfig]:
    """All MCP endpoints: `/mcp`, one per namespace and one per virtual server."""
    found = {"/mcp": McpEndpointConfig("/mcp", "underscore")}
    for namespace in settings.backends:
        found[f"/mcp/{namespace}"] = McpEndpointConfig(f"/mcp/{namespace}", "bare", (namespace,))
    for name, server in settings.servers.items():
        found[f"/mcp/{name}"] = McpEndpointConfig(
            f"/mcp/{name}",
            server.names,
            server.backends,
            name,
            build_shape(server, server.tools.rules),
            ToolPresentation(server.tools.view, server.tools.budget),
        )
    return found


async def _open_all(backends: Sequence[tuple[str, ServedBackend]]) -> None:
    """Open all backends; on failure close those that were opened."""
    opened: list[ServedBackend] = []
    try:
        for namespace, backend in backends:
            await _open(namespace, backend)
            opened.append(backend)
    except LoadError:
        for backend in opened:
            await backend.close()
        raise


async def _open(namespace: str, backend: ServedBackend) -> None:
    try:
        await backend.open()
    except Exception as exc:
        # A server's own lifespan may fail in any way.
        raise LoadError(f"backends.{namespace}: it cannot be started: {exc}") from exc


def origin_of(entry: Entry) -> str:
    """Digest of the settings that identify a server: stored lists and pins of another server do not apply."""
    identity = entry.model_dump_json(
        include={"module", "url", "openapi", "transport", "command", "args", "cwd", "isolation"}
    )
    return sha256(identity.encode()).hexdigest()
