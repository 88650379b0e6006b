"""Serves the search view: `search_tools` and `describe_tools`, and the unwrapping of `call_tool`. Both eras use it.

`call_tool` is not a call of its own: before the call is built, it is replaced by the call of the real tool, so that
every stage, the audit log and the approval text see that tool.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.names import DESCRIBE_TOOLS, GATEWAY_TOOLS, SEARCH_TOOLS
from gateway.catalogue.search.index import Hit, SearchKind
from gateway.catalogue.search.meaning import MeaningRanker
from gateway.catalogue.search.tools import DEFAULT_RESULTS, check_call, check_describe, check_search
from gateway.catalogue.view import View
from gateway.contract import Call, Handler, Json, McpHttpRequest, Result
from gateway.errors import Fault, Kind
from gateway.protocol.messages import Message

TOOLS_HEADER: Final = "gatehouse-tools"
"""Request header with which a client selects how tools are presented to it."""
_VIEWS: Final = frozenset({"list", "search", "auto"})
MAX_SCHEMAS_BYTES: Final = 24_000
"""Maximum size of the input schemas in one search result; the others are left to `describe_tools`."""
_EFFECTS: Final = ("reads", "writes, may be repeated", "writes", "destroys or sends data outside")

Access = Callable[[Call], Json]
"""Returns what a caller needs for the call of a tool, such as an approval. The call has the route of that tool."""


def called_gateway_tool(request: McpHttpRequest, view: View, message: Message) -> str | None:
    """The gateway's own tool that the message calls on an endpoint that offers it; None for any other message."""
    if message.method != "tools/call":
        return None
    name = message.params.get("name")
    if type(name) is not str or name not in GATEWAY_TOOLS:
        return None
    return name if view.offers_search(request.headers.get(TOOLS_HEADER, "")) else None


def check_tools_header(request: McpHttpRequest) -> None:
    """Raise `Fault` if the request asks for an unknown way to present tools."""
    asked = request.headers.get(TOOLS_HEADER)
    if asked is not None and asked not in _VIEWS:
        raise Fault(Kind.INVALID_INPUT, f"The header {TOOLS_HEADER} must be list, search or auto.")


def unwrap_call(params: Json) -> Json:
    """The params of the real call in a `call_tool`. Raises `Fault` for arguments that name no tool."""
    wrapped: Json = params.get("arguments") or {}
    check_call(wrapped)
    return {**params, "name": wrapped["name"], "arguments": wrapped.get("arguments") or {}}


class ToolSearch:
    """Handles `search_tools` and `describe_tools` with what the caller's lists contain."""

    def __init__(self, catalogue: Catalogue, access: Access, ranker: MeaningRanker | None = None) -> None:
        self._catalogue = catalogue
        self._access = access
        self._ranker = ranker

    def make_handler(self) -> Handler:
        async def handle(call: Call) -> Result:
            await self._catalogue.load_isolated_lists(call)
            view = self._catalogue.view(call.caller, call.endpoint)
            if view is None:
                raise Fault(Kind.NOT_FOUND, "There is no such endpoint.")
            found = await self._answer(call, view)
            return {
                "content": [{"type": "text", "text": msgspec.json.encode(found).decode()}],
                "structuredContent": found,
                "isError": False,
            }

        return handle

    async def _answer(self, call: Call, view: View) -> Json:
        arguments = call.arguments
        if call.params["name"] == SEARCH_TOOLS:
            check_search(arguments)
            return await self._search(call, view, arguments)
        check_describe(arguments)
        return self._describe(call, view, arguments)

    async def _search(self, call: Call, view: View, arguments: Json) -> Json:
        kinds = cast("list[SearchKind]", arguments.get("kinds") or ["tool"])
        hits = await view.search.index.search(
            arguments["query"],
            arguments.get("limit", DEFAULT_RESULTS),
            frozenset(kinds),
            arguments.get("namespace"),
            self._ranker,
        )
        results: list[Json] = []
        room = MAX_SCHEMAS_BYTES
        for hit in hits:
            shown = self._summary(call, hit)
            if (schema := hit.definition.get("inputSchema")) is not None:
                room -= len(msgspec.json.encode(schema))
                if room >= 0:
                    shown["inputSchema"] = schema
                else:
                    shown["inputSchemaOmitted"] = f"Call {DESCRIBE_TOOLS} for it."
            results.append(shown)
        answer: Json = {"results": results}
        if not results:
            answer["hint"] = "Nothing fits. Search again with other words, or with fewer."
        return answer

    def _describe(self, call: Call, view: View, arguments: Json) -> Json:
        names = cast("list[str]", arguments["names"])
        found = {name: view.describe(name) for name in names}
        described = [{**hit.definition, **self._summary(call, hit)} for hit in found.values() if hit is not None]
        unknown = [name for name, hit in found.items() if hit is None]
        return {"tools": described, **({"unknown": unknown} if unknown else {})}

    def _summary(self, call: Call, hit: Hit) -> Json:
        definition, route = hit.definition, hit.route
        shown: Json = {"kind": hit.kind, "namespace": route.namespace}
        for key in ("name", "title", "uri", "uriTemplate", "description", "arguments"):
            if definition.get(key):
                shown[key] = definition[key]
        if hit.kind == "tool":
            shown["effect"] = _EFFECTS[route.effect]
            params: Json = {"name": route.exposed, "arguments": {}}
            shown |= self._access(replace(call, route=route, params=params))
        return shown


def tool_access(preview: Callable[[Call], Any]) -> Access:
    """Describe what policy requires for a call. `preview` returns its decision, or None if arguments decide."""

    def access(call: Call) -> Json:
        decision = preview(call)
        if decision is None:
            return {"needsApproval": "depends on the arguments"}
        needed: Json = {"needsApproval": bool(decision.approval)}
        if decision.denied:
            needed["denied"] = decision.message or "Policy does not allow this."
        return needed

    return access
