"""What both eras stand on: the two paths a call may walk, and where a name leads."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.view import LISTS, View
from gateway.contract import Call, Handler, Json, McpHttpRequest, Result, Route
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.responses import Header
from gateway.protocol.strict_json import decode

CARRIED: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""The methods that reach a backend."""
IS_LIST: Final = frozenset(LISTS)


LARGE: Final = 64 * 1024

Refusal = Fault | ForeignError


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointContext:
    """Given to each era's door."""

    catalogue: Catalogue
    path: Handler
    """For the methods that reach a backend."""
    lists: Callable[[Handler], Handler]
    """The short path around an end of its own: lists, discovery, subscriptions."""
    refused: Callable[[Refusal], Handler]
    """The path of a request that the door itself refuses, for this reason."""
    charged: Handler
    """Only charges: the path of what is neither a request nor refused."""
    correlate: Callable[[Mapping[str, str], Json | None], tuple[str, dict[str, str]]]
    """Headers and `_meta` -> correlation id and trace context."""
    server_info: Json
    challenge: Callable[[Fault, str, Sequence[str]], Header] | None = None
    """A fault, the endpoint, and the scopes to ask for -> the challenge for a token that lacks them."""

    def lacking(self, fault: Fault, inbound: McpHttpRequest, *, modern: bool) -> tuple[int, tuple[Header, ...]]:
        """How a token that lacks a scope is answered over HTTP: the client may go and get one that has it."""
        if self.challenge is None:
            return 200, ()
        wanted: list[str] = fault.details["missing_scopes"]
        if not modern:
            # Older clients ask for exactly what they are told, and would lose what they have.
            wanted = sorted({*inbound.caller.scopes, *wanted})
        return 403, (self.challenge(fault, inbound.path, wanted),)

    def view(self, inbound: McpHttpRequest) -> View | None:
        return self.catalogue.view(inbound.caller, inbound.path)


async def read_aside(body: bytes) -> Json:
    """The object in a body of at least `LARGE` bytes: in a thread, so that others are served meanwhile."""
    return await asyncio.to_thread(decode, body)


def find(view: View, method: str, params: Json) -> tuple[Route | None, Json]:
    """Where the request leads, and its params as the backend should see them but for the name."""
    if method == "tools/call":
        return view.tools.get(params["name"]), params
    if method == "prompts/get":
        return view.prompts.get(params["name"]), params
    if method == "resources/read":
        return view.resource(params["uri"]), params
    if (found := view.completable(params["ref"])) is None:
        return None, params
    return found[0], {**params, "ref": found[1]}


class RouteLookup:
    """For `resolve`: the lists of the caller's backends are read once more before a name is called unknown."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def __call__(self, call: Call) -> Route | None:
        view = self._catalogue.view(call.caller, call.endpoint)
        if view is None or not await self._catalogue.reread(view.namespaces, call):
            return None
        view = self._catalogue.view(call.caller, call.endpoint)
        return find(view, call.method, call.params)[0] if view else None


def list_end(catalogue: Catalogue) -> Handler:
    """The end of the short path for the four lists."""

    async def listed(call: Call) -> Result:
        await catalogue.ready(call)
        view = seen(catalogue, call)
        return view.page(call.method, call.params.get("cursor"), call.client.version)

    return listed


def seen(catalogue: Catalogue, call: Call) -> View:
    view = catalogue.view(call.caller, call.endpoint)
    if view is None:
        raise Fault(Kind.NOT_FOUND, "There is no such endpoint.")
    return view
