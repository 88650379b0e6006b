"""What a remote server says while a request runs, told to the client that the request belongs to."""

import itertools
from collections.abc import Mapping
from typing import Any, Final, Protocol

from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from gateway.contract import MODERN, Call, Json
from gateway.errors import Fault, ForeignError
from gateway.upstream.bulkhead import Bulkhead

_OF_THE_ENVELOPE: Final = (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
_ASKS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
METHOD_NOT_FOUND: Final = -32601

_tokens = itertools.count(1)


class Talk(Protocol):
    """The other half of a request under way."""

    @property
    def token(self) -> int | None:
        """Under which the server is to report progress, if anybody wants it: no other request has the same."""
        ...

    async def notified(self, method: str, params: Json) -> None: ...

    async def asked(self, method: str, params: Json) -> Json:
        """The answer to a request of the server. Raises `ForeignError`."""
        ...

    async def hung_up(self) -> None:
        """The server let its client go for a while; it will be asked for the rest."""
        ...


class Nobody:
    """For requests of the gateway's own: nobody hears, nobody answers."""

    token: int | None = None

    async def notified(self, method: str, params: Json) -> None:
        """Nobody hears it."""

    async def asked(self, method: str, params: Json) -> Json:
        if method == "ping":
            return {}
        raise ForeignError(METHOD_NOT_FOUND, "Method not found", method)

    async def hung_up(self) -> None:
        """Nobody waits."""


class Conversation:
    """One call, as the server sees it: with a progress token of ours, so that no two clients' tokens can meet."""

    def __init__(self, call: Call, bulkhead: Bulkhead) -> None:
        self._call = call
        self._bulkhead = bulkhead
        self._theirs = call.meta.get("progressToken")
        self.token = next(_tokens) if self._theirs is not None else None

    async def notified(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            if params.get("progressToken") == self.token and self.token is not None:
                await self._call.wire.notify(method, {**params, "progressToken": self._theirs})
        elif method == "notifications/message" or (
            method == "notifications/elicitation/complete" and not self._call.client.modern
        ):
            await self._call.wire.notify(method, params)

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

    def meta(self, *, modern: bool, capabilities: Mapping[str, Any], info: Json) -> Json:
        """The request's `_meta` for the server: the client's own, but for what is said anew on each hop."""
        call = self._call
        given = call.meta
        if modern and call.client.modern and self.token is None and not call.trace and CLIENT_INFO_META_KEY in given:
            return given  # it says all this already
        meta = {key: value for key, value in given.items() if key not in _OF_THE_ENVELOPE}
        meta |= call.trace
        if self.token is not None:
            meta["progressToken"] = self.token
        if modern:
            meta[PROTOCOL_VERSION_META_KEY] = MODERN
            meta[CLIENT_CAPABILITIES_META_KEY] = dict(capabilities)
            meta[CLIENT_INFO_META_KEY] = info
            if (level := call.client.log_level) is not None:
                meta[LOG_LEVEL_META_KEY] = level
        return meta
