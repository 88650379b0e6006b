"""Relays messages of an upstream server to the client whose call is in progress.

Also translates client capabilities and change notifications. Used by every transport of remote servers.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, cast

from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from gateway.contract import MODERN, Call, Caller, Json, ListChange, UpstreamHop
from gateway.errors import Fault, ForeignError
from gateway.upstream.bulkhead import Bulkhead

_ENVELOPE_KEYS: Final = (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
"""Handshake era only: a modern client learns it when it repeats the call."""
_CLIENT_REQUESTS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
METHOD_NOT_FOUND: Final = -32601

_LIST_CHANGES: Final[Mapping[str, ListChange]] = {
    "notifications/tools/list_changed": ListChange("tools"),
    "notifications/prompts/list_changed": ListChange("prompts"),
    "notifications/resources/list_changed": ListChange("resources"),
}
LISTING_CAPABILITIES: Final[Json] = {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
"""Client capabilities that the gateway declares in its own sessions, which read the lists.

Some servers list a tool only to clients with the capabilities that it requires.
"""

_EXTENSIONS: Final = "extensions"
_FORWARDED: Final[Mapping[str, frozenset[str]]] = {
    "roots": frozenset(),
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    _EXTENSIONS: frozenset(),
}
"""Client capabilities that work through the gateway, with their sub-capabilities."""

_tokens = itertools.count(1)


def parse_change(method: str, params: Json) -> ListChange | None:
    """Parse a change notification; None for any other notification."""
    if method == "notifications/resources/updated":
        details = {key: value for key, value in params.items() if key != "uri"}
        return ListChange("resource", str(params.get("uri")), None, details or None)
    return _LIST_CHANGES.get(method)


def server_capabilities(discovery: Json) -> Json:
    """Return the server's capabilities from its `initialize` or `server/discover` result; {} if malformed."""
    value: Any = discovery.get("capabilities")
    return cast("Json", value) if isinstance(value, dict) else {}


def capability_names(capabilities: Json) -> frozenset[str]:
    """Return the names of the client capabilities that the gateway forwards.

    Clients with equal names may share a session. Unknown capabilities are left out, so that a client cannot force new
    sessions or processes by inventing names.
    """
    names: list[str] = []
    for name, value in capabilities.items():
        parts = _FORWARDED.get(name)
        if parts is not None and type(value) is dict:
            names.append(name)
            if parts and value:
                names.extend(parts.intersection(cast("Json", value)))
    return frozenset(names)


def forwarded_capabilities(capabilities: Json) -> Json:
    """Return the capabilities to declare to a server for all clients with the same `capability_names`."""
    names = capability_names(capabilities)
    forwarded: Json = {
        name: {part: {} for part in sorted(parts & names)} for name, parts in _FORWARDED.items() if name in names
    }
    if _EXTENSIONS in forwarded:
        forwarded[_EXTENSIONS] = capabilities[_EXTENSIONS]
    return forwarded


class MessageHandler(Protocol):
    """Receives what a server sends while one request is in progress."""

    @property
    def token(self) -> int | None:
        """The progress token of the request, unique among all requests; None if the client wants no progress."""
        ...

    def on_sent(self, id: int, version: str, session: str | None) -> None:
        """Called before the request is sent, with its id, protocol version and the digest of its session, if any."""
        ...

    async def on_notification(self, method: str, params: Json) -> None: ...

    async def on_request(self, method: str, params: Json) -> Json:
        """Answer a request of the server. Raises `ForeignError`."""
        ...

    async def on_stream_closed(self) -> None:
        """Called when the server closed the response stream early; the gateway resumes it."""
        ...


class NullMessageHandler:
    """For requests of the gateway itself: ignores notifications and answers `ping` only."""

    token: int | None = None

    def on_sent(self, id: int, version: str, session: str | None) -> None:
        """Ignored."""

    async def on_notification(self, method: str, params: Json) -> None:
        """Ignored."""

    async def on_request(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        raise ForeignError(METHOD_NOT_FOUND, "Method not found", method)

    async def on_stream_closed(self) -> None:
        """Ignored."""


class Conversation:
    """Message handler of one client call.

    Replaces the client's progress token with a unique one, passes changes to `on_change`, and records the request in
    the hop.
    """

    def __init__(
        self, call: Call, hop: UpstreamHop, bulkhead: Bulkhead, on_change: Callable[[ListChange, Caller], None]
    ) -> None:
        self._call = call
        self._hop = hop
        self._bulkhead = bulkhead
        self._on_change = on_change
        self._client_token = call.meta.get("progressToken")
        self.token = next(_tokens) if self._client_token is not None else None

    def on_sent(self, id: int, version: str, session: str | None) -> None:
        hop = self._hop
        hop.request_id, hop.protocol, hop.session = id, version, session

    async def on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            if params.get("progressToken") == self.token and self.token is not None:
                await self._call.wire.notify(method, {**params, "progressToken": self._client_token})
        elif method == "notifications/message" or (method == _ELICITATION_COMPLETE and not self._call.client.modern):
            await self._call.wire.notify(method, params)
        elif (change := parse_change(method, params)) is not None:
            # Some servers notify only the client whose call caused the change.
            self._on_change(change, self._call.caller)

    async def on_request(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        if method not in _CLIENT_REQUESTS:
            raise ForeignError(METHOD_NOT_FOUND, "Method not found", method)
        tenant = self._call.caller.tenant
        # User input may take minutes, during which the backend is idle.
        self._bulkhead.release(tenant)
        try:
            return (await self._call.wire.ask({"it": {"method": method, "params": params}}))["it"]
        except Fault as fault:
            raise ForeignError(METHOD_NOT_FOUND, fault.message) from fault
        finally:
            self._bulkhead.force_acquire(tenant)

    async def on_stream_closed(self) -> None:
        await self._call.wire.end_response()

    def build_meta(self, era: Literal["modern", "handshake"], trace: Mapping[str, str], gateway_info: Json) -> Json:
        """Build the request's `_meta`: the client's own, with the fields that each hop sets itself replaced.

        `gateway_info` is the client info for a client that sent none.
        """
        client, client_meta = self._call.client, self._call.meta
        if era == "modern" and CLIENT_CAPABILITIES_META_KEY in client_meta:
            # A modern client has filled in the envelope; an internal call of a module has not.
            meta: Json = {CLIENT_INFO_META_KEY: gateway_info, **client_meta, **trace}
        else:
            meta = {key: value for key, value in client_meta.items() if key not in _ENVELOPE_KEYS}
            meta |= trace
            if era == "modern":
                meta[PROTOCOL_VERSION_META_KEY] = MODERN
                meta[CLIENT_CAPABILITIES_META_KEY] = client.capabilities
                meta[CLIENT_INFO_META_KEY] = client.info or gateway_info
                if client.log_level is not None:
                    meta[LOG_LEVEL_META_KEY] = client.log_level
        if self.token is not None:
            meta["progressToken"] = self.token
        return meta
