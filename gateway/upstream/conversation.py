"""What a remote server says while a request runs, told to the client that the request belongs to."""

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

_OF_THE_ENVELOPE: Final = (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
_COMPLETE: Final = "notifications/elicitation/complete"
"""Of the handshake era alone: in the modern one the client learns it by asking again."""
_ASKS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
METHOD_NOT_FOUND: Final = -32601

_CHANGES: Final[Mapping[str, ListChange]] = {
    "notifications/tools/list_changed": ListChange("tools"),
    "notifications/prompts/list_changed": ListChange("prompts"),
    "notifications/resources/list_changed": ListChange("resources"),
}
ABLE: Final[Json] = {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
"""What the gateway says it can do where it only lists: some servers list a tool only to clients that can serve it."""

_EXTENSIONS: Final = "extensions"
_CARRIED: Final[Mapping[str, frozenset[str]]] = {
    "roots": frozenset(),
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    _EXTENSIONS: frozenset(),
}
"""What a client can do that reaches it through the gateway, with the parts that a server may rely on."""

_tokens = itertools.count(1)


def change_of(method: str, params: Json) -> ListChange | None:
    """What a notification says has changed, if it is one that does."""
    if method == "notifications/resources/updated":
        more = {key: value for key, value in params.items() if key != "uri"}
        return ListChange("resource", str(params.get("uri")), None, more or None)
    return _CHANGES.get(method)


def offered(greeting: Json) -> Json:
    """The server's own capabilities, whatever it answered: what is no object is none."""
    said: Any = greeting.get("capabilities")
    return cast("Json", said) if isinstance(said, dict) else {}


def abilities(capabilities: Json) -> frozenset[str]:
    """The names of what a client can do: those who can do the same may be one client to a server.

    None but those that the gateway can carry: what a client invents makes no session and no process of its own.
    """
    names: list[str] = []
    for name, said in capabilities.items():
        parts = _CARRIED.get(name)
        if parts is not None and type(said) is dict:
            names.append(name)
            if parts and said:
                names.extend(parts.intersection(cast("Json", said)))
    return frozenset(names)


def carried(capabilities: Json) -> Json:
    """What a server is told that a client can do, where it is told once for all clients of the same `abilities`."""
    names = abilities(capabilities)
    told: Json = {
        name: {part: {} for part in sorted(parts & names)} for name, parts in _CARRIED.items() if name in names
    }
    if _EXTENSIONS in told:
        told[_EXTENSIONS] = capabilities[_EXTENSIONS]
    return told


class MessageHandler(Protocol):
    """The other half of a request under way."""

    @property
    def token(self) -> int | None:
        """Under which the server is to report progress, if anybody wants it: no other request has the same."""
        ...

    def sent(self, id: int, version: str, session: str | None) -> None:
        """The request goes out under that id, in that revision, and in the session of that digest if it has one."""
        ...

    async def notified(self, method: str, params: Json) -> None: ...

    async def asked(self, method: str, params: Json) -> Json:
        """The answer to a request of the server. Raises `ForeignError`."""
        ...

    async def hung_up(self) -> None:
        """The server let its client go for a while; it will be asked for the rest."""
        ...


class NullMessageHandler:
    """For requests of the gateway's own: nobody hears, nobody answers."""

    token: int | None = None

    def sent(self, id: int, version: str, session: str | None) -> None:
        """Nobody cares."""

    async def notified(self, method: str, params: Json) -> None:
        """Nobody hears it."""

    async def asked(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        raise ForeignError(METHOD_NOT_FOUND, "Method not found", method)

    async def hung_up(self) -> None:
        """Nobody waits."""


class Conversation:
    """One call, as the server sees it: with a progress token of ours, so that no two clients' tokens can meet.

    What changed meanwhile is told to `changed`, and how it was asked is noted in the hop.
    """

    def __init__(
        self, call: Call, hop: UpstreamHop, bulkhead: Bulkhead, changed: Callable[[ListChange, Caller], None]
    ) -> None:
        self._call = call
        self._hop = hop
        self._bulkhead = bulkhead
        self._changed = changed
        self._theirs = call.meta.get("progressToken")
        self.token = next(_tokens) if self._theirs is not None else None

    def sent(self, id: int, version: str, session: str | None) -> None:
        hop = self._hop
        hop.request_id, hop.protocol, hop.session = id, version, session

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            if params.get("progressToken") == self.token and self.token is not None:
                await self._call.wire.notify(method, {**params, "progressToken": self._theirs})
        elif method == "notifications/message" or (method == _COMPLETE and not self._call.client.modern):
            await self._call.wire.notify(method, params)
        elif (change := change_of(method, params)) is not None:
            # Some servers tell of a change only to the client whose call made it.
            self._changed(change, self._call.caller)

    async def asked(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        if method not in _ASKS:
            raise ForeignError(METHOD_NOT_FOUND, "Method not found", method)
        tenant = self._call.caller.tenant
        # A person may take minutes, in which the backend has nothing to do.
        self._bulkhead.leave(tenant)
        try:
            return (await self._call.wire.ask({"it": {"method": method, "params": params}}))["it"]
        except Fault as fault:
            raise ForeignError(METHOD_NOT_FOUND, fault.message) from fault
        finally:
            self._bulkhead.step_in(tenant)

    async def hung_up(self) -> None:
        await self._call.wire.hang_up()

    def meta(self, era: Literal["modern", "handshake"], trace: Mapping[str, str], ours: Json) -> Json:
        """The request's `_meta` for the server: the client's own, but for what is said anew on each hop.

        `ours` stands for a client that does not say who it is.
        """
        client, given = self._call.client, self._call.meta
        if era == "modern" and CLIENT_CAPABILITIES_META_KEY in given:
            # A client of this era says of itself what is to be said; a module that calls says nothing.
            meta: Json = {CLIENT_INFO_META_KEY: ours, **given, **trace}
        else:
            meta = {key: value for key, value in given.items() if key not in _OF_THE_ENVELOPE}
            meta |= trace
            if era == "modern":
                meta[PROTOCOL_VERSION_META_KEY] = MODERN
                meta[CLIENT_CAPABILITIES_META_KEY] = client.capabilities
                meta[CLIENT_INFO_META_KEY] = client.info or ours
                if client.log_level is not None:
                    meta[LOG_LEVEL_META_KEY] = client.log_level
        if self.token is not None:
            meta["progressToken"] = self.token
        return meta
