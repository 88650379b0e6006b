"""Dependencies and route lookup that both protocol eras share.

`app.py` builds one `EndpointContext`; `LegacyEra` and `ModernEra` serve every request with it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.names import CALL_TOOL
from gateway.catalogue.view import LISTS, View
from gateway.contract import Call, Caller, Handler, Json, McpHttpRequest, Result, Route
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.messages import Message
from gateway.protocol.responses import Header
from gateway.protocol.strict_json import decode
from gateway.protocol.tool_search import ToolSearch, called_gateway_tool, check_tools_header, unwrap_call

BACKEND_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""The methods that are sent to a backend."""
LIST_METHODS: Final = frozenset(LISTS)
"""The methods that the gateway answers from its catalogue."""
MODERN_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
HANDSHAKE_TASK_METHODS: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel", "tasks/list"})
"""The requests about tasks of each era."""
TASK_METHODS: Final = MODERN_TASK_METHODS | HANDSHAKE_TASK_METHODS
LARGE_BODY_BYTES: Final = 64 * 1024
"""Bodies of this size and above are decoded in a thread."""

Refusal = Fault | ForeignError


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointContext:
    """The catalogue and the stage pipelines that serve the requests of an endpoint."""

    catalogue: Catalogue
    call_handler: Handler
    """The full pipeline, for the methods that are sent to a backend."""
    make_local_handler: Callable[[Handler], Handler]
    """Wraps a handler of the gateway's own in the short pipeline: lists, discovery, subscriptions."""
    make_refusal_handler: Callable[[Refusal], Handler]
    """Builds a handler that charges, audits and traces a request, and then raises the reason for its refusal."""
    charge_handler: Handler
    """Charges the rate limit and does nothing else: for notifications and responses."""
    correlate: Callable[[Mapping[str, str], Json | None], tuple[str, dict[str, str]]]
    """Maps headers and `_meta` to a correlation id and a trace context."""
    server_info: Json
    tool_search: ToolSearch
    tool_handler: Handler
    """Handles `tools/call`: the full pipeline, or a task that goes through it."""
    task_handler: Handler
    """Handles the requests about tasks."""
    open_task_id: Callable[[Caller, Json], str | None]
    """Returns the canonical id of the tool of the task that the params name; None if the caller has no such task."""
    follow_tasks: Callable[[Call, frozenset[str]], Coroutine[Any, Any, None]]
    """Announces changes of tasks that servers run, for as long as a client listens to them."""
    build_challenge: Callable[[Fault, str, Sequence[str]], Header] | None = None
    """Builds the `WWW-Authenticate` header from a fault, the endpoint path and the scopes to request."""

    def insufficient_scope_response(
        self, fault: Fault, request: McpHttpRequest, *, modern: bool
    ) -> tuple[int, tuple[Header, ...]]:
        """Return the status and headers for a token without a required scope, so that the client can obtain one."""
        if self.build_challenge is None:
            return 200, ()
        scopes: list[str] = fault.details["missing_scopes"]
        if not modern:
            # Older clients request exactly the scopes of the challenge and would lose those they already have.
            scopes = sorted({*request.caller.scopes, *scopes})
        return 403, (self.build_challenge(fault, request.path, scopes),)


async def decode_in_thread(body: bytes) -> Json:
    """Decode a body of at least `LARGE_BODY_BYTES` bytes without blocking the event loop."""
    return await asyncio.to_thread(decode, body)


def find_route(view: View, method: str, params: Json) -> tuple[Route | None, Json]:
    """Return the route of a backend method, and the params with the backend's own completion reference."""
    if method == "tools/call":
        return view.tools.get(params["name"]), params
    if method == "prompts/get":
        return view.prompts.get(params["name"]), params
    if method == "resources/read":
        return view.find_resource(params["uri"]), params
    if (found := view.resolve_completion(params["ref"])) is None:
        return None, params
    return found[0], {**params, "ref": found[1]}


def select_handler(
    request: McpHttpRequest, view: View, message: Message, handlers: Mapping[str, Handler], search: Handler
) -> Handler | None:
    """The handler of a request: that of its method, or `search` for the gateway's own tools that do not call others."""
    name = called_gateway_tool(request, view, message)
    return handlers.get(message.method) if name is None or name == CALL_TOOL else search


def find_called_route(request: McpHttpRequest, view: View, message: Message) -> tuple[Route | None, Json]:
    """`find_route` for a request of a client, which may call a tool through `call_tool`. Raises `Fault`."""
    check_tools_header(request)
    params = message.params
    if (name := called_gateway_tool(request, view, message)) is not None:
        if name != CALL_TOOL:
            return None, params
        params = unwrap_call(params)
    return find_route(view, message.method, params)


class RouteLookup:
    """Used by the `resolve` stage: reloads the lists of the caller's backends before it reports an unknown name."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def __call__(self, call: Call) -> Route | None:
        view = self._catalogue.view(call.caller, call.endpoint)
        if view is None:
            return None
        # Also looked up again if nothing was due: the lists of an isolated server may have been read just now.
        await self._catalogue.reread(_candidates(view, call), call)
        view = self._catalogue.view(call.caller, call.endpoint)
        route = find_route(view, call.method, call.params)[0] if view else None
        if route is not None:
            self._catalogue.forgive_reread(route.namespace, call.caller)
        return route


def _candidates(view: View, call: Call) -> Iterable[str]:
    """The backends that may have the name. A prefixed name belongs to one backend, or to none."""
    if call.method in ("tools/call", "prompts/get") and len(view.namespaces) > 1:
        namespace = view.namespace_of_name(str(call.params["name"]))
        return [] if namespace is None else [namespace]
    return view.namespaces


def make_list_handler(catalogue: Catalogue) -> Handler:
    """Return the handler of the four list methods."""

    async def handle_list(call: Call) -> Result:
        await catalogue.load_isolated_lists(call)
        view = require_view(catalogue, call)
        return view.page(call.method, call.params.get("cursor"), call.client.version, call.tools_view)

    return handle_list


def require_view(catalogue: Catalogue, call: Call) -> View:
    """Return the caller's view of the call's endpoint. Raises `Fault(NOT_FOUND)` if there is no such endpoint."""
    view = catalogue.view(call.caller, call.endpoint)
    if view is None:
        raise Fault(Kind.NOT_FOUND, "There is no such endpoint.")
    return view
