"""A caller's view of the catalogue: routes by name, and the lists as encoded pages. Endpoints serve clients from it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

import msgspec

from gateway.catalogue.effects import effect_of, needs_approval
from gateway.catalogue.list_format import LISTED, ListFormat, ToolPresentation
from gateway.catalogue.names import Mode, canonical, exposed_name, split
from gateway.catalogue.search.index import Hit, SearchKind
from gateway.catalogue.search.view_search import ViewSearch
from gateway.catalogue.shape import EndpointShape, InvalidShape, ItemPresentation, shape_arguments
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
from gateway.contract import HANDSHAKE_TASKS_SINCE, MODERN, TASKS_EXTENSION, Json, Route, RouteShape
from gateway.errors import Fault, Kind

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
CANONICAL_ID: Final = "gatehouse/id"
DEGRADED: Final = "gatehouse/degraded"
EFFECT: Final = "gatehouse/effect"
MAX_INSTRUCTIONS: Final = 16_384

_NONE: Final[Json] = {}
_KINDS: Final[Mapping[str, SearchKind]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "resourceTemplates": "resource",
}

LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


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
        shape: EndpointShape = EndpointShape(),
        presentation: ToolPresentation = LISTED,
    ) -> None:
        self.tools: dict[str, Route] = {}
        self.prompts: dict[str, Route] = {}
        self.resources: dict[str, Route] = {}
        self.templates: dict[str, Route] = {}
        self.namespaces: dict[str, Snapshot] = {}
        self._mode: Mode = mode
        self._format = list_format
        self._can_see = can_see
        self._shape = shape
        self._presentation = presentation
        self.problems: list[str] = []
        """Rules of the shape that cannot be applied, each with the item it concerns."""
        self._new_names: dict[str, list[tuple[_ListItem, str]]] = {"tools": [], "prompts": []}
        self._lists: dict[str, list[_ListItem]] = {key: [] for key in LISTS.values()}
        self._pages: dict[tuple[str, int, str], bytes] = {}
        self._has_task_tools = False
        """Whether a call of any listed tool may become a task of the gateway."""
        for snapshot in snapshots:
            self.namespaces[snapshot.backend.namespace] = snapshot
            self._add_snapshot(snapshot, can_list)
        for key, wanted in self._new_names.items():
            if wanted:
                self._apply_names(key, wanted)
        self._degraded = [namespace for namespace, each in self.namespaces.items() if each.degraded]

    # ---- routes ----

    def namespace_of_name(self, name: str) -> str | None:
        """The backend to which a name of a tool or prompt belongs, also if the backend does not list it now."""
        if (namespace := self._shape.namespace_of_name(name)) is None:
            parts = split(name)
            namespace = parts[0] if parts is not None else None
        return namespace if namespace in self.namespaces else None

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
        if self._shape.present("resources", route.namespace, route.canonical) is None:
            return None
        return route if self._can_see(route) else None

    # ---- lists ----

    def page(self, method: str, cursor: str | None, version: str, tools_view: str = "") -> bytes:
        """One encoded page of a list. Raises `Fault` for a cursor that the gateway did not issue.

        `tools_view` is what the client asks for instead of the endpoint's own way to present tools.
        """
        if method == "tools/list" and self._lists_search(tools_view):
            return self._search_page(modern=version == MODERN)
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

    def offers_search(self, tools_view: str) -> bool:
        """Whether the gateway's own tools can be called here."""
        return (tools_view or self._presentation.view) != "list"

    def _lists_search(self, tools_view: str) -> bool:
        match tools_view or self._presentation.view:
            case "search":
                return True
            case "auto":
                return self.search.tools_tokens > self._presentation.budget
            case _:
                return False

    @cached_property
    def search(self) -> ViewSearch:
        """The search for everything that is listed."""
        hits = [Hit(_KINDS[key], item.route, item.definition) for key in _KINDS for item in self._lists[key]]
        return ViewSearch(hits, self.namespaces)

    def describe(self, name: str) -> Hit | None:
        """The listed tool of this name, in any of its forms."""
        route = self.tools.get(name)
        return self.search.tools.get(route.canonical) if route is not None else None

    def _search_page(self, *, modern: bool) -> bytes:
        key = ("search", 0, MODERN if modern else "")
        if (encoded := self._pages.get(key)) is None:
            result: Json = {"tools": self.search.definitions}
            encoded = self._pages[key] = msgspec.json.encode(result | self.cache_hints() if modern else result)
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

    def handshake_capabilities(self, version: str, declared: Mapping[str, object]) -> Json:
        """The capabilities for a client of the handshake era, with the tasks of 2025-11-25.

        Its revisions define no extensions. Clients that know one, such as MCP Apps, declare it all the same: they get
        the extensions that they have `declared`.
        """
        capabilities = self.capabilities()
        extensions: Json = capabilities.pop("extensions", _NONE)
        if shared := {name: value for name, value in extensions.items() if name in declared}:
            capabilities["extensions"] = shared
        if version == HANDSHAKE_TASKS_SINCE and self._has_task_tools:
            capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return capabilities

    def instructions(self) -> str:
        """Those of the virtual server, or the instructions of each backend under a heading with its namespace."""
        if (written := self._shape.server.instructions) is not None:
            return written[:MAX_INSTRUCTIONS]
        sections = [
            (ns, self._shape.instructions_of(ns, each.lists.instructions).strip())
            for ns, each in self.namespaces.items()
        ]
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
                if (listed := build(snapshot, definition)) is not None and self._can_see(listed.route):
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

    def _apply_names(self, key: str, wanted: list[tuple[_ListItem, str]]) -> None:
        """Give items the names of their rules; all other forms of their names still lead to them.

        The name of another item is never taken: a rule that would do so has no effect.
        """
        names = self.tools if key == "tools" else self.prompts
        renamed: dict[int, _ListItem] = {}
        for item, name in wanted:
            route = item.route
            if names.get(route.exposed) is not route:
                continue  # the caller may not see it
            if names.get(name, route) is not route:
                self.problems.append(f"{route.canonical}: the name {name!r} is the name of {names[name].canonical}")
                continue
            after = replace(route, exposed=name)
            underscore = self._exposed_name(route.namespace, route.name, "underscore")
            for form in (route.exposed, route.canonical, underscore, name):
                if names.get(form, route) is route:
                    names[form] = after
            renamed[id(item)] = _ListItem(after, {**item.definition, "name": name})
        self._lists[key] = [renamed.get(id(item), item) for item in self._lists[key]]

    def _exposed_name(self, namespace: str, name: str, mode: Mode) -> str:
        return exposed_name(namespace, name, mode, self._format.max_length, self._format.client_prefix_budget)

    def _build_tool(self, snapshot: Snapshot, definition: Json) -> _ListItem | None:
        backend, name = snapshot.backend, definition["name"]
        id = canonical(backend.namespace, name)
        if (presentation := self._shape.present("tools", backend.namespace, id)) is None:
            return None
        try:
            schema, withheld = self._shape_schema(snapshot, definition, presentation)
        except InvalidShape as exc:
            # Not served: the arguments that cannot be set may be what makes the tool acceptable here.
            self.problems.append(f"{id}: {exc}")
            return None
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=id,
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
            shape=withheld,
            endpoint=self._shape.confined_to,
        )
        shown = presentation.show(rewrite_meta(definition, self._wrap(snapshot)))
        meta: Json = {**(shown.get("_meta") or {}), CANONICAL_ID: route.canonical, EFFECT: route.effect}
        if backend.trusted and route.effect:
            meta.setdefault(SUPPORTS_DRY_RUN, route.allows_dry_run)
        if snapshot.degraded:
            meta[DEGRADED] = True
        item = {**shown, "name": route.exposed, "_meta": meta, "inputSchema": schema}
        item.pop("execution", None)  # only revision 2025-11-25 has it: `_handshake_item` adds it
        return self._with_name("tools", _ListItem(route, item), presentation)

    def _shape_schema(
        self, snapshot: Snapshot, definition: Json, presentation: ItemPresentation
    ) -> tuple[Json, RouteShape | None]:
        """The listed input schema, and the arguments that are withheld. Raises `InvalidShape`."""
        if presentation.fixed or presentation.hidden:
            return shape_arguments(definition["inputSchema"], presentation.fixed, presentation.hidden)
        exact: Json = definition["inputSchema"]
        return (snapshot.flat_schemas[definition["name"]] if self._mode == "underscore" else exact), None

    def _build_prompt(self, snapshot: Snapshot, definition: Json) -> _ListItem | None:
        backend, name = snapshot.backend, definition["name"]
        id = canonical(backend.namespace, name)
        if (presentation := self._shape.present("prompts", backend.namespace, id)) is None:
            return None
        route = Route(
            namespace=backend.namespace,
            name=name,
            canonical=id,
            exposed=self._exposed_name(backend.namespace, name, self._mode),
            backend=backend,
            definition=definition,
            rewrite=self._rewriter(snapshot),
            effect=0,
            timeout=timeout_of(backend, "*", self._format.deadline),
            endpoint=self._shape.confined_to,
        )
        shown = {**presentation.show(definition), "name": route.exposed}
        return self._with_name("prompts", _ListItem(route, shown), presentation)

    def _with_name(self, key: str, item: _ListItem, presentation: ItemPresentation) -> _ListItem:
        """Note the name that the rules give an item. It is assigned once the names of all items are known."""
        name = presentation.exposed_name
        if name is None and presentation.own_name is not None:
            name = self._exposed_name(item.route.namespace, presentation.own_name, self._mode)
        if name is not None and name != item.route.exposed:
            self._new_names[key].append((item, name))
        return item

    def _build_resource(self, snapshot: Snapshot, definition: Json) -> _ListItem | None:
        shown = self._wrap(snapshot)(definition["uri"])
        route = self._resource_route(snapshot, definition, definition["uri"], shown)
        return self._show_resource(route, {**definition, "uri": shown})

    def _build_template(self, snapshot: Snapshot, definition: Json) -> _ListItem | None:
        own, backend = definition["uriTemplate"], snapshot.backend
        shown = own if self._mode == "bare" else wrap_template(backend.namespace, own, backend.manifest.uri_prefixes)
        route = self._resource_route(snapshot, definition, own, shown)
        return self._show_resource(route, {**definition, "uriTemplate": shown})

    def _show_resource(self, route: Route, definition: Json) -> _ListItem | None:
        presentation = self._shape.present("resources", route.namespace, route.canonical)
        return None if presentation is None else _ListItem(route, presentation.show(definition))

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
            endpoint=self._shape.confined_to,
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
