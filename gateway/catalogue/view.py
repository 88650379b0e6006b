"""A caller's view of the catalogue: routes by name, and the lists as encoded pages. Endpoints serve clients from it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from gateway.catalogue.effects import effect_of, needs_approval
from gateway.catalogue.names import Mode, canonical, exposed_name
from gateway.catalogue.snapshot import (
    SUPPORTS_DRY_RUN,
    Snapshot,
    allows_dry_run,
    has_upstream_tasks,
    may_repeat,
    task_support,
    timeout_of,
)
from gateway.catalogue.uris import rewrite_links, rewrite_meta, unwrap, wrap, wrap_template
from gateway.contract import HANDSHAKE_TASKS_SINCE, MODERN, TASKS_EXTENSION, Json, Route
from gateway.errors import Fault, Kind

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
CANONICAL_ID: Final = "gatehouse/id"
DEGRADED: Final = "gatehouse/degraded"
EFFECT: Final = "gatehouse/effect"
MAX_INSTRUCTIONS: Final = 16_384

_NONE: Final[Json] = {}

LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class CursorCodec(Protocol):
    """Encodes a page number as the cursor that clients send back."""

    def mint(self, method: str, page: int) -> str: ...

    def read(self, method: str, cursor: str) -> int:
        """Decode a cursor. Raises `Fault` if it was not issued for this method."""
        ...


@dataclass(frozen=True, slots=True)
class ListFormat:
    """How views name, page and cache their items; the same for every view."""

    max_length: int = 64
    client_prefix_budget: int = 16
    deadline: float = 60.0
    page_size: int = 100
    ttl: float = 60.0
    server_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    task_patterns: tuple[str, ...] = ()
    """Canonical ids, or patterns of them, of tools whose calls may become tasks."""
    cursors: CursorCodec = field(default_factory=lambda: PlainCursorCodec())


@dataclass(frozen=True, slots=True)
class _ListItem:
    route: Route
    definition: Json


class View:
    """The routes and lists of one endpoint for one class of callers. Pages are encoded on first use."""

    def __init__(
        self,
        snapshots: Iterable[Snapshot],
        mode: Mode,
        list_format: ListFormat,
        can_see: Callable[[Route], bool],
        can_list: Callable[[Route], bool],
    ) -> None:
        self.tools: dict[str, Route] = {}
        self.prompts: dict[str, Route] = {}
        self.resources: dict[str, Route] = {}
        self.templates: dict[str, Route] = {}
        self.namespaces: dict[str, Snapshot] = {}
        self._mode: Mode = mode
        self._format = list_format
        self._can_see = can_see
        self._lists: dict[str, list[_ListItem]] = {key: [] for key in LISTS.values()}
        self._pages: dict[tuple[str, int, str], bytes] = {}
        self._has_task_tools = False
        """Whether a call of any listed tool may become a task of the gateway."""
        for snapshot in snapshots:
            self.namespaces[snapshot.backend.namespace] = snapshot
            self._add_snapshot(snapshot, can_list)
        self._degraded = [namespace for namespace, each in self.namespaces.items() if each.degraded]

    # ---- routes ----

    def find_resource(self, uri: str) -> Route | None:
        """The route of a resource. A URI that is not listed gets a route if its backend may know it."""
        if (listed := self.resources.get(uri)) is not None:
            return listed
        if self._mode == "bare":
            return next((self._unlisted_route(each, uri, uri) for each in self.namespaces.values()), None)
        if (unwrapped := unwrap(uri)) is not None and unwrapped[0] in self.namespaces:
            return self._unlisted_route(self.namespaces[unwrapped[0]], unwrapped[1], uri)
        for snapshot in self.namespaces.values():
            if uri.startswith(snapshot.backend.manifest.uri_prefixes or ("\0",)):
                return self._unlisted_route(snapshot, uri, uri)
        return None

    def resolve_completion(self, ref: Json) -> tuple[Route, Json] | None:
        """The route of a completion's reference, and the reference with the backend's own name or URI."""
        if ref.get("type") == "ref/prompt":
            route = self.prompts.get(str(ref.get("name")))
            return (route, {**ref, "name": route.name}) if route else None
        uri = str(ref.get("uri"))
        route = self.templates.get(uri) or self.find_resource(uri)
        return (route, {**ref, "uri": route.name}) if route else None

    def _unlisted_route(self, snapshot: Snapshot, own: str, shown: str) -> Route | None:
        if "resources" not in snapshot.lists.capabilities:
            return None
        route = self._resource_route(snapshot, {"uri": own, "name": own}, own, shown)
        return route if self._can_see(route) else None

    # ---- lists ----

    def page(self, method: str, cursor: str | None, version: str) -> bytes:
        """One encoded page of a list. Raises `Fault` for a cursor that the gateway did not issue."""
        number = self._format.cursors.read(method, cursor) if cursor is not None else 0
        listed = self._lists[LISTS[method]]
        size = self._format.page_size
        if number and number * size >= len(listed):
            raise Fault(Kind.INVALID_INPUT, "The cursor is past the end of the list. Start again without a cursor.")
        # Revisions of the handshake era before tasks get the same page.
        shown_version = version if version >= HANDSHAKE_TASKS_SINCE else ""
        key = (method, number, shown_version)
        if (encoded := self._pages.get(key)) is None:
            encoded = self._pages[key] = self._encode_page(method, number, shown_version)
        return encoded

    def items(self, method: str) -> list[Json]:
        """A whole list, without paging."""
        return [each.definition for each in self._lists[LISTS[method]]]

    def _encode_page(self, method: str, number: int, version: str) -> bytes:
        key, size, modern = LISTS[method], self._format.page_size, version == MODERN
        listed = self._lists[key]
        page = listed[number * size : (number + 1) * size]
        result: Json = {
            key: [each.definition for each in page]
            if modern
            else [_handshake_item(each, with_tasks=version == HANDSHAKE_TASKS_SINCE) for each in page]
        }
        if (number + 1) * size < len(listed):
            result["nextCursor"] = self._format.cursors.mint(method, number + 1)
        if modern:
            result |= self.cache_hints()
        elif self._degraded:
            result["_meta"] = {DEGRADED: self._degraded}
        return msgspec.json.encode(result)

    def cache_hints(self) -> Json:
        """Members of every cacheable result of revision 2026-07-28. Private, because the view depends on the caller."""
        meta: Json = {SERVER_INFO: self._format.server_info}
        if self._degraded:
            meta[DEGRADED] = self._degraded
        return {
            "resultType": "complete",
            "ttlMs": int(self._format.ttl * 1000),
            "cacheScope": "private",
            "_meta": meta,
        }

    def capabilities(self) -> Json:
        """The union of the backends' capabilities. `listChanged` is always set: the gateway sends the notifications."""
        offered = [each.lists.capabilities for each in self.namespaces.values()]
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
        if self._has_task_tools:
            extensions[TASKS_EXTENSION] = {}
        if extensions:
            union["extensions"] = extensions
        return union

    def handshake_capabilities(self, version: str) -> Json:
        """The capabilities for a client of the handshake era: without extensions, with the tasks of 2025-11-25."""
        capabilities = {key: value for key, value in self.capabilities().items() if key != "extensions"}
        if version == HANDSHAKE_TASKS_SINCE and self._has_task_tools:
            capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return capabilities

    def instructions(self) -> str:
        """The instructions of each backend, under a heading with its namespace."""
        sections = [(ns, each.lists.instructions.strip()) for ns, each in self.namespaces.items()]
        if self._mode == "bare":
            return "\n\n".join(text for _, text in sections if text)[:MAX_INSTRUCTIONS]
        return "\n\n".join(f"## {ns}\n{text}" for ns, text in sections if text)[:MAX_INSTRUCTIONS]

    # ---- building ----

    def _add_snapshot(self, snapshot: Snapshot, can_list: Callable[[Route], bool]) -> None:
        lists = snapshot.lists
        builders = (
            ("tools", lists.tools, self._build_tool),
            ("prompts", lists.prompts, self._build_prompt),
            ("resources", lists.resources, self._build_resource),
            ("resourceTemplates", lists.templates, self._build_template),
        )
        for key, items, build in builders:
            for definition in items:
                listed = build(snapshot, definition)
                if self._can_see(listed.route):
                    self._add_route(key, listed.route)
                    if can_list(listed.route):
                        self._lists[key].append(listed)
                        self._has_task_tools = self._has_task_tools or listed.route.task_support != "forbidden"

    def _add_route(self, key: str, route: Route) -> None:
        if key == "resources":
            self.resources[route.exposed] = route
        elif key == "resourceTemplates":
            self.templates[route.exposed] = route
        else:
            names = self.tools if key == "tools" else self.prompts
            # The listed name has priority. The other forms of the name can be called as well.
            names[route.exposed] = route
            for other in (route.canonical, self._exposed_name(route.namespace, route.name, "underscore")):
                names.setdefault(other, route)

    def _exposed_name(self, namespace: str, name: str, mode: Mode) -> str:
        return exposed_name(namespace, name, mode, self._format.max_length, self._format.client_prefix_budget)

    def _build_tool(self, snapshot: Snapshot, definition: Json) -> _ListItem:
        backend, name = snapshot.backend, definition["name"]
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=canonical(backend.namespace, name),
            exposed=self._exposed_name(backend.namespace, name, self._mode),
            backend=backend,
            definition=definition,
            check=snapshot.argument_checks.get(name),
            header_schema=snapshot.header_schemas.get(name),
            rewrite=self._rewriter(snapshot),
            effect=effect_of(backend, definition),
            needs_approval=needs_approval(backend, definition),
            allows_dry_run=allows_dry_run(backend, definition),
            may_repeat=may_repeat(backend, definition),
            pinned=name not in snapshot.unpinned,
            timeout=timeout_of(backend, name, self._format.deadline),
            task_support=task_support(backend, definition, self._format.task_patterns),
            has_upstream_tasks=has_upstream_tasks(snapshot.lists, definition),
        )
        shown = rewrite_meta(definition, self._wrap(snapshot))
        meta: Json = {**(shown.get("_meta") or {}), CANONICAL_ID: route.canonical, EFFECT: route.effect}
        if backend.trusted and route.effect:
            meta.setdefault(SUPPORTS_DRY_RUN, route.allows_dry_run)
        if snapshot.degraded:
            meta[DEGRADED] = True
        item = {**shown, "name": route.exposed, "_meta": meta}
        item.pop("execution", None)  # only revision 2025-11-25 has it: `_handshake_item` adds it
        if self._mode == "underscore":
            item["inputSchema"] = snapshot.flat_schemas[name]
        return _ListItem(route, item)

    def _build_prompt(self, snapshot: Snapshot, definition: Json) -> _ListItem:
        backend, name = snapshot.backend, definition["name"]
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=canonical(backend.namespace, name),
            exposed=self._exposed_name(backend.namespace, name, self._mode),
            backend=backend,
            definition=definition,
            rewrite=self._rewriter(snapshot),
            effect=0,
            timeout=timeout_of(backend, "*", self._format.deadline),
        )
        return _ListItem(route, {**definition, "name": route.exposed})

    def _build_resource(self, snapshot: Snapshot, definition: Json) -> _ListItem:
        shown = self._wrap(snapshot)(definition["uri"])
        route = self._resource_route(snapshot, definition, definition["uri"], shown)
        return _ListItem(route, {**definition, "uri": shown})

    def _build_template(self, snapshot: Snapshot, definition: Json) -> _ListItem:
        own, backend = definition["uriTemplate"], snapshot.backend
        shown = own if self._mode == "bare" else wrap_template(backend.namespace, own, backend.manifest.uri_prefixes)
        route = self._resource_route(snapshot, definition, own, shown)
        return _ListItem(route, {**definition, "uriTemplate": shown})

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
            timeout=timeout_of(backend, "*", self._format.deadline),
        )

    def _wrap(self, snapshot: Snapshot) -> Callable[[str], str]:
        if self._mode == "bare":
            return str
        backend = snapshot.backend
        return partial(_wrap_uri, backend.namespace, backend.manifest.uri_prefixes)

    def _rewriter(self, snapshot: Snapshot) -> Callable[[Json], Json] | None:
        return None if self._mode == "bare" else partial(rewrite_links, wrap=self._wrap(snapshot))


def _wrap_uri(namespace: str, uri_prefixes: tuple[str, ...], uri: str) -> str:
    return wrap(namespace, uri, uri_prefixes)


def _handshake_item(listed: _ListItem, *, with_tasks: bool) -> Json:
    """Remove an output schema that is not of type object: clients of the handshake era reject the whole list for it.

    A tool whose server requires a task is listed as optional: without one, the task runs to its end inside the call.
    """
    item = listed.definition
    if with_tasks and listed.route.task_support != "forbidden":
        item = {**item, "execution": {"taskSupport": "optional"}}
    schema = item.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return item
    return {key: value for key, value in item.items() if key != "outputSchema"}


class PlainCursorCodec:
    """Cursors without encryption, for use without a seal key."""

    def mint(self, method: str, page: int) -> str:
        return urlsafe_b64encode(b"page:%d" % page).decode()

    def read(self, method: str, cursor: str) -> int:
        try:
            label, _, number = urlsafe_b64decode(cursor.encode("ascii")).partition(b":")
            page = int(number)
        except (BadBase64, ValueError):
            page, label = 0, b""
        if label != b"page" or page < 1:
            raise Fault(Kind.INVALID_INPUT, "The cursor is not valid. Start again without a cursor.")
        return page
