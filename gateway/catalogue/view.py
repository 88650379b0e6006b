"""A caller's view of the catalogue: where each name leads, and the lists as finished bytes."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from gateway.catalogue.names import Mode, canonical, exposed
from gateway.catalogue.snapshot import Snapshot, effect_of, timeout_of
from gateway.catalogue.uris import rewrite_links, rewrite_meta, unwrap, wrap, wrap_template
from gateway.contract import MODERN, Json, Route
from gateway.errors import Fault, Kind

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
CANONICAL: Final = "gatehouse/id"
DEGRADED: Final = "gatehouse/degraded"
MAX_INSTRUCTIONS: Final = 16_384

_NONE: Final[Json] = {}

LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class CursorCodec(Protocol):
    """What stands for a page of a list towards clients."""

    def mint(self, method: str, page: int) -> str: ...

    def read(self, method: str, cursor: str) -> int:
        """Raises `Fault` for a cursor that was not given for that list."""
        ...


@dataclass(frozen=True, slots=True)
class ListFormat:
    """How names are made, for every view."""

    max_length: int = 64
    client_prefix_budget: int = 16
    deadline: float = 60.0
    page_size: int = 100
    ttl: float = 60.0
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cursors: CursorCodec = field(default_factory=lambda: PlainCursorCodec())


@dataclass(frozen=True, slots=True)
class _Listed:
    route: Route
    item: Json


class View:
    """Built whole for one endpoint and one class of callers; its pages are encoded when first asked for."""

    def __init__(
        self,
        snapshots: Iterable[Snapshot],
        mode: Mode,
        naming: ListFormat,
        sees: Callable[[Route], bool],
        lists: Callable[[Route], bool],
    ) -> None:
        self.tools: dict[str, Route] = {}
        self.prompts: dict[str, Route] = {}
        self.resources: dict[str, Route] = {}
        self.templates: dict[str, Route] = {}
        self.namespaces: dict[str, Snapshot] = {}
        self._mode: Mode = mode
        self._naming = naming
        self._sees = sees
        self._lists: dict[str, list[_Listed]] = {key: [] for key in LISTS.values()}
        self._pages: dict[tuple[str, int, bool], bytes] = {}
        for snapshot in snapshots:
            self.namespaces[snapshot.backend.namespace] = snapshot
            self._take(snapshot, lists)
        self._degraded = [namespace for namespace, each in self.namespaces.items() if each.degraded]

    # ---- where a name leads ----

    def resource(self, uri: str) -> Route | None:
        """The listed resource of that URI, or one that its backend may know though it does not list it."""
        if (listed := self.resources.get(uri)) is not None:
            return listed
        if self._mode == "bare":
            return next((self._unlisted(each, uri, uri) for each in self.namespaces.values()), None)
        if (unwrapped := unwrap(uri)) is not None and unwrapped[0] in self.namespaces:
            return self._unlisted(self.namespaces[unwrapped[0]], unwrapped[1], uri)
        for snapshot in self.namespaces.values():
            if uri.startswith(snapshot.backend.manifest.uri_prefixes or ("\0",)):
                return self._unlisted(snapshot, uri, uri)
        return None

    def completable(self, ref: Json) -> tuple[Route, Json] | None:
        """Where a completion's reference leads, and the reference as the backend knows it."""
        if ref.get("type") == "ref/prompt":
            route = self.prompts.get(str(ref.get("name")))
            return (route, {**ref, "name": route.name}) if route else None
        uri = str(ref.get("uri"))
        route = self.templates.get(uri) or self.resource(uri)
        return (route, {**ref, "uri": route.name}) if route else None

    def _unlisted(self, snapshot: Snapshot, own: str, shown: str) -> Route | None:
        if "resources" not in snapshot.offer.capabilities:
            return None
        route = self._resource_route(snapshot, {"uri": own, "name": own}, own, shown)
        return route if self._sees(route) else None

    # ---- the lists ----

    def page(self, method: str, cursor: str | None, version: str) -> bytes:
        """One page of a list, encoded. Raises `Fault` for a cursor that we did not give."""
        number = self._naming.cursors.read(method, cursor) if cursor is not None else 0
        listed = self._lists[LISTS[method]]
        size = self._naming.page_size
        if number and number * size >= len(listed):
            raise Fault(Kind.INVALID_INPUT, "No such page; start again without a cursor.")
        key = (method, number, version == MODERN)
        if (encoded := self._pages.get(key)) is None:
            encoded = self._pages[key] = self._encode(method, number, modern=version == MODERN)
        return encoded

    def items(self, method: str) -> list[Json]:
        """A whole list, for those who do not page."""
        return [each.item for each in self._lists[LISTS[method]]]

    def _encode(self, method: str, number: int, *, modern: bool) -> bytes:
        key, size = LISTS[method], self._naming.page_size
        listed = self._lists[key]
        shown = [each.item for each in listed[number * size : (number + 1) * size]]
        result: Json = {key: shown if modern else [_for_handshake(item) for item in shown]}
        if (number + 1) * size < len(listed):
            result["nextCursor"] = self._naming.cursors.mint(method, number + 1)
        if modern:
            result |= self.cache_hints()
        elif self._degraded:
            result["_meta"] = {DEGRADED: self._degraded}
        return msgspec.json.encode(result)

    def cache_hints(self) -> Json:
        """What every cacheable result of 2026-07-28 carries; the view depends on the caller, so it is private."""
        meta: Json = {SERVER_INFO: self._naming.server_info}
        if self._degraded:
            meta[DEGRADED] = self._degraded
        return {
            "resultType": "complete",
            "ttlMs": int(self._naming.ttl * 1000),
            "cacheScope": "private",
            "_meta": meta,
        }

    def capabilities(self) -> Json:
        """The union of what the backends in view offer. Changes are told by the gateway, whatever the backend can."""
        offered = [each.offer.capabilities for each in self.namespaces.values()]
        union: Json = {"logging": {}}
        for key in ("tools", "prompts"):
            if any(key in each for each in offered):
                union[key] = {"listChanged": True}
        if any("resources" in each for each in offered):
            subscribe = any(each.get("resources", _NONE).get("subscribe") for each in offered)
            union["resources"] = {"listChanged": True, "subscribe": subscribe}
        if any("completions" in each for each in offered):
            union["completions"] = {}
        extensions: Json = {}
        for each in offered:
            extensions |= each.get("extensions") or {}
        if extensions:
            union["extensions"] = extensions
        return union

    def instructions(self) -> str:
        """Each backend's own, headed by its namespace."""
        said = [(ns, each.offer.instructions.strip()) for ns, each in self.namespaces.items()]
        if self._mode == "bare":
            return "\n\n".join(text for _, text in said if text)[:MAX_INSTRUCTIONS]
        return "\n\n".join(f"## {ns}\n{text}" for ns, text in said if text)[:MAX_INSTRUCTIONS]

    # ---- building ----

    def _take(self, snapshot: Snapshot, lists: Callable[[Route], bool]) -> None:
        offer = snapshot.offer
        makers = (
            ("tools", offer.tools, self._tool),
            ("prompts", offer.prompts, self._prompt),
            ("resources", offer.resources, self._resource),
            ("resourceTemplates", offer.templates, self._template),
        )
        for key, items, make in makers:
            for definition in items:
                listed = make(snapshot, definition)
                if self._sees(listed.route):
                    self._index(key, listed.route)
                    if lists(listed.route):
                        self._lists[key].append(listed)

    def _index(self, key: str, route: Route) -> None:
        if key == "resources":
            self.resources[route.exposed] = route
        elif key == "resourceTemplates":
            self.templates[route.exposed] = route
        else:
            names = self.tools if key == "tools" else self.prompts
            # The shown name comes first; any other form of it may be called as well.
            names[route.exposed] = route
            for other in (route.canonical, self._exposed(route.namespace, route.name, "underscore")):
                names.setdefault(other, route)

    def _exposed(self, namespace: str, name: str, mode: Mode) -> str:
        return exposed(namespace, name, mode, self._naming.max_length, self._naming.client_prefix_budget)

    def _tool(self, snapshot: Snapshot, definition: Json) -> _Listed:
        backend, name = snapshot.backend, definition["name"]
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=canonical(backend.namespace, name),
            exposed=self._exposed(backend.namespace, name, self._mode),
            backend=backend,
            definition=definition,
            check=snapshot.checks.get(name),
            header_schema=snapshot.headers.get(name),
            rewrite=self._rewriter(snapshot),
            effect=effect_of(backend, definition),
            pinned=name not in snapshot.unpinned,
            timeout=timeout_of(backend, name, self._naming.deadline),
        )
        shown = rewrite_meta(definition, self._wrap(snapshot))
        meta: Json = {**(shown.get("_meta") or {}), CANONICAL: route.canonical}
        if snapshot.degraded:
            meta[DEGRADED] = True
        item = {**shown, "name": route.exposed, "_meta": meta}
        item.pop("execution", None)  # of 2025-11-25's experimental tasks, which the gateway does not offer
        if self._mode == "underscore":
            item["inputSchema"] = snapshot.flat[name]
        return _Listed(route, item)

    def _prompt(self, snapshot: Snapshot, definition: Json) -> _Listed:
        backend, name = snapshot.backend, definition["name"]
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=canonical(backend.namespace, name),
            exposed=self._exposed(backend.namespace, name, self._mode),
            backend=backend,
            definition=definition,
            rewrite=self._rewriter(snapshot),
            effect=0,
            timeout=timeout_of(backend, "*", self._naming.deadline),
        )
        return _Listed(route, {**definition, "name": route.exposed})

    def _resource(self, snapshot: Snapshot, definition: Json) -> _Listed:
        shown = self._wrap(snapshot)(definition["uri"])
        route = self._resource_route(snapshot, definition, definition["uri"], shown)
        return _Listed(route, {**definition, "uri": shown})

    def _template(self, snapshot: Snapshot, definition: Json) -> _Listed:
        own, backend = definition["uriTemplate"], snapshot.backend
        shown = own if self._mode == "bare" else wrap_template(backend.namespace, own, backend.manifest.uri_prefixes)
        route = self._resource_route(snapshot, definition, own, shown)
        return _Listed(route, {**definition, "uriTemplate": shown})

    def _resource_route(self, snapshot: Snapshot, definition: Json, own: str, shown: str) -> Route:
        backend = snapshot.backend
        return Route(
            namespace=backend.namespace,
            name=own,
            canonical=f"{backend.namespace}:{own}",
            exposed=shown,
            backend=backend,
            definition=definition,
            rewrite=self._rewriter(snapshot),
            effect=0,
            timeout=timeout_of(backend, "*", self._naming.deadline),
        )

    def _wrap(self, snapshot: Snapshot) -> Callable[[str], str]:
        if self._mode == "bare":
            return str
        backend = snapshot.backend
        return partial(_wrapped, backend.namespace, backend.manifest.uri_prefixes)

    def _rewriter(self, snapshot: Snapshot) -> Callable[[Json], Json] | None:
        return None if self._mode == "bare" else partial(rewrite_links, wrap=self._wrap(snapshot))


def _wrapped(namespace: str, owns: tuple[str, ...], uri: str) -> str:
    return wrap(namespace, uri, owns)


def _for_handshake(item: Json) -> Json:
    """Clients of the handshake era refuse a whole list over an outputSchema that is not an object's."""
    schema = item.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return item
    return {key: value for key, value in item.items() if key != "outputSchema"}


class PlainCursorCodec:
    """For whoever has nothing to seal them with."""

    def mint(self, method: str, page: int) -> str:
        return urlsafe_b64encode(b"page:%d" % page).decode()

    def read(self, method: str, cursor: str) -> int:
        try:
            word, _, number = urlsafe_b64decode(cursor.encode("ascii")).partition(b":")
            page = int(number)
        except (BadBase64, ValueError):
            page, word = 0, b""
        if word != b"page" or page < 1:
            raise Fault(Kind.INVALID_INPUT, "That cursor is not one of ours; start again without a cursor.")
        return page
