"""The backend of an HTTP API: a `RemoteBackend` whose transport turns tool calls into requests of the API."""

import logging
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from gateway.contract import BackendLists, Call, Caller, ClientProfile, DefinitionGuard, Json, ListChange, Manifest
from gateway.errors import Fault, ForeignError, Kind
from gateway.outbound import DIRECT, OutboundRoute, OutboundTarget, parse_target
from gateway.upstream.bulkhead import Capacity
from gateway.upstream.conversation import METHOD_NOT_FOUND, MessageHandler
from gateway.upstream.health import LoadError, UpstreamHealth
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.http.request import RequestHead, encode_headers
from gateway.upstream.http.target import HttpTarget, UpstreamCredential
from gateway.upstream.http.transport import load_tls
from gateway.upstream.lists import ChangeListener
from gateway.upstream.openapi.document import MAX_DOCUMENT_BYTES
from gateway.upstream.openapi.operation import DIGEST_KEYWORD, Operation
from gateway.upstream.openapi.operations import OperationFilter
from gateway.upstream.openapi.requests import build_request
from gateway.upstream.openapi.responses import to_result
from gateway.upstream.openapi.source import ApiLoader, FileSource, UrlSource
from gateway.upstream.remote import Era, RemoteBackend, TransportKind

log = logging.getLogger("gatehouse.upstream")

_CREDENTIAL: Final = re.compile(r"auth|cookie|credential|key|pass|secret|session|signature|token", re.IGNORECASE)
"""Names of headers that carry credentials."""
_ERAS: Final[frozenset[Era]] = frozenset({"modern"})
"""The results have the newest shape; the gateway converts them for clients of the handshake era."""


class OpenApiTransport:
    """`gateway.upstream.remote.UpstreamTransport`. An API has no sessions, notifications or protocol eras."""

    isolated = None
    known_eras: frozenset[Era] | None = _ERAS
    kind: TransportKind = "http"

    def __init__(
        self,
        name: str,
        target: HttpTarget,
        loader: ApiLoader,
        *,
        base_path: str,
        address: tuple[str, int],
        secrets: Sequence[str],
        credential: UpstreamCredential | None,
        max_bytes: int,
    ) -> None:
        self._name = name
        self._target = target
        self._loader = loader
        self._base_path = base_path
        self._secrets = secrets
        self._credential = credential
        self._guard: DefinitionGuard | None = None
        # Base64 takes four bytes for three, and the result has other members.
        self._max_blob = max(max_bytes * 3 // 4 - 4096, 0)
        self.address: tuple[str, int] | None = address

    def failure_domain(self, call: Call) -> Hashable:
        return None

    def guard_definitions(self, guard: DefinitionGuard) -> None:
        """Nothing is compared on reconnection: the tools come from the document, not from the server."""
        self._guard = guard

    def task_session(self, call: Call) -> str:
        return ""

    async def eras(self, caller: Caller | None = None) -> frozenset[Era]:
        return _ERAS

    def invalidate_eras(self) -> None:
        """Do nothing: an API has no eras."""

    async def probe(self) -> None:
        """Check that the server answers at all: any status will do, because no operation is known to be harmless."""
        leased = await self._target.request("GET", self._base_path or "/", b"accept: */*\r\n", None, idempotent=True)
        leased.release()

    async def discover(self) -> Json:
        api = await self._loader.load()
        info = {"name": api.title or self._name, "version": api.version or "0"}
        return {"capabilities": {"tools": {}}, "serverInfo": info}

    async def request(self, method: str, params: Json) -> Json:
        api = self._loader.api
        assert api is not None, "discover comes first"
        return {"tools": list(api.tools)}

    async def send(self, call: Call, era: Era, params: Json, handler: MessageHandler, trace: Mapping[str, str]) -> Json:
        if call.method != "tools/call":
            raise ForeignError(METHOD_NOT_FOUND, f"{self._name} has no {call.method}.")
        api = self._loader.api or await self._loader.load()
        operation = api.operations.get(str(params.get("name")))
        if self._guard is not None:
            self._guard.check(call)
        if operation is None or not _is_listed(operation, call):
            raise Fault(Kind.NOT_FOUND, "The definition of this tool has changed. List the tools again.")
        request = build_request(operation, call.arguments)
        # Asked before and after: a token that the API rejects is replaced, and the response may return either.
        tokens = await self._tokens()
        headers = encode_headers((("x-correlation-id", call.id), *trace.items())) + request.headers
        leased = await self._target.request(
            request.method,
            self._base_path + request.path,
            headers,
            request.body,
            idempotent=request.method == "GET",
        )
        try:
            secrets = (*self._secrets, *tokens, *await self._tokens())
            return to_result(self._name, operation, leased.response, secrets, self._max_blob)
        finally:
            leased.release()

    async def _tokens(self) -> tuple[str, ...]:
        return () if self._credential is None else (await self._credential.token(),)

    async def listen(self, handler: MessageHandler) -> None:
        raise ForeignError(METHOD_NOT_FOUND, "an API reports no changes; its document is read again periodically")

    def session_owner(self, caller: Caller) -> str | None:
        return None

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        return None

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        raise ForeignError(METHOD_NOT_FOUND, f"{self._name} has no resources.")

    async def close(self) -> None:
        await self._loader.close()
        await self._target.close()


class ApiBackend(RemoteBackend):
    """An HTTP API. The effect of a tool follows from its method, unless the entry states another."""

    def __init__(
        self,
        namespace: str,
        manifest: Manifest,
        transport: OpenApiTransport,
        loader: ApiLoader,
        info: Json,
        capacity: Capacity = Capacity(),
    ) -> None:
        super().__init__(namespace, manifest, transport, info, capacity)
        self._declared = manifest
        self._loader = loader

    @property
    def problems(self) -> Mapping[str, str]:
        """Reason by operation, for those that are not served."""
        return self._loader.api.problems if self._loader.api is not None else {}

    async def open(self) -> None:
        """Read the document, so that the effects are known before stored lists are served."""
        try:
            await self._loader.load()
        except Fault as fault:
            # Like a server that is down: the others are served, and the document is read again later.
            log.warning("openapi %s: no tools until the document can be read: %s", self.namespace, fault.message)
        self._apply_effects()

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        lists = await super().fetch_lists(caller)
        if self._apply_effects():
            # Views that were built from stored lists have other effects.
            self._notify_listeners(ListChange("tools"))
        return lists

    def _apply_effects(self) -> bool:
        """Derive the effects from the methods. True if they changed."""
        api, before = self._loader.api, self.manifest.effects
        if api is not None:
            self.manifest = replace(self._declared, effects={**api.effects, **self._declared.effects})
        return self.manifest.effects != before

    def health(self) -> UpstreamHealth:
        return replace(super().health(), transport="openapi", eras=())


def build_api_backend(
    namespace: str,
    manifest: Manifest,
    document: Path | str,
    url: str,
    headers: Mapping[str, str],
    *,
    include: OperationFilter,
    exclude: OperationFilter,
    allow_private: bool,
    max_bytes: int,
    info: Json,
    capacity: Capacity = Capacity(),
    credential: UpstreamCredential | None = None,
    route: OutboundRoute = DIRECT,
    ca_file: Path | None = None,
) -> ApiBackend:
    """Build the backend of a `backends:` entry; `document` is a path or a URL. Raises `LoadError`."""
    destination, head = build_api_head(namespace, url, headers, allow_private=allow_private)
    connections = partial(_target, namespace, route=route, ca_file=ca_file)
    target = connections(destination, head, max_bytes, credential)
    if isinstance(document, Path):
        source = FileSource(namespace, document)
    else:
        origin = parse_document_url(namespace, document, allow_private=allow_private)
        # A credential is for the API alone, so it is sent only if the document is at the same origin.
        same = (origin.scheme, origin.host, origin.port) == (destination.scheme, destination.host, destination.port)
        document_head = head if same else RequestHead(origin, {}, accept=None)
        pool_target = connections(origin, document_head, MAX_DOCUMENT_BYTES, credential if same else None)
        source = UrlSource(namespace, pool_target, origin.path)
    loader = ApiLoader(namespace, source, include, exclude, tuple(headers))
    transport = OpenApiTransport(
        namespace,
        target,
        loader,
        base_path=destination.path.rstrip("/"),
        address=(destination.host, destination.port),
        secrets=_secrets_of(headers),
        credential=credential,
        max_bytes=max_bytes,
    )
    return ApiBackend(namespace, manifest, transport, loader, info, capacity)


def build_api_head(
    namespace: str, url: str, headers: Mapping[str, str], *, allow_private: bool
) -> tuple[OutboundTarget, RequestHead]:
    """Parse the address of the API and encode the fixed headers. Raises `LoadError`."""
    try:
        destination = parse_target(url, allow_private=allow_private)
        return destination, RequestHead(destination, headers, accept=None)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.url: {fault.message}") from fault
    except ValueError as exc:
        raise LoadError(f"backends.{namespace}.headers: {exc}") from exc


def parse_document_url(namespace: str, url: str, *, allow_private: bool) -> OutboundTarget:
    """Parse the address of a document. Raises `LoadError`."""
    try:
        return parse_target(url, allow_private=allow_private)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.openapi: {fault.message}") from fault


def _target(
    namespace: str,
    destination: OutboundTarget,
    head: RequestHead,
    max_bytes: int,
    credential: UpstreamCredential | None,
    *,
    route: OutboundRoute,
    ca_file: Path | None,
) -> HttpTarget:
    tls = load_tls(namespace, route, ca_file) if destination.scheme == "https" else None
    pool = ConnectionPool(namespace, destination, max_bytes=max_bytes, tls=tls, route=route)
    return HttpTarget(pool, head, credential)


def _is_listed(operation: Operation, call: Call) -> bool:
    """Whether the request is the one that the definition behind the call was listed and pinned with.

    The document may have been read again before the lists were compared.
    """
    schema: Json = call.route.definition.get("inputSchema", {}) if call.route is not None else {}
    return schema.get(DIGEST_KEYWORD, operation.digest) == operation.digest


def _secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of headers that carry credentials, and the part after `Bearer`, which an API may return alone.

    Other headers, such as the version of an API, may occur in any response.
    """
    values = [value for name, value in headers.items() if _CREDENTIAL.search(name)]
    return tuple(dict.fromkeys(part for value in values for part in (value, value.rpartition(" ")[2])))
