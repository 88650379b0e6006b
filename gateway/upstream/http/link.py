"""The way to a server over HTTP, in either era."""

import asyncio
from collections.abc import Callable

from gateway.contract import Call, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.http.legacy import LegacyHttp, Who
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.remote import Era, envelope, speaks_modern, wanted
from gateway.upstream.talk import Nobody, Talk

_OURSELVES: Who = ("", frozenset())
_NOBODY = Nobody()


class HttpLink:
    """`gateway.upstream.remote.Link`."""

    def __init__(self, modern: ModernHttp, handshake: LegacyHttp, info: Json, close_pool: Callable[[], None]) -> None:
        self._modern = modern
        self._handshake = handshake
        self._info = info
        self._close_pool = close_pool
        self._eras: frozenset[Era] | None = None
        self._probing = asyncio.Lock()

    async def eras(self) -> frozenset[Era]:
        if self._eras is None:
            async with self._probing:
                if self._eras is None:
                    self._eras = await self._probe()
        return self._eras

    def doubt(self) -> None:
        self._eras = None

    async def _probe(self) -> frozenset[Era]:
        found: set[Era] = set()
        try:
            if speaks_modern(await self._ask_modern("server/discover", {})):
                found.add("modern")
        except ForeignError:
            pass
        except Fault as fault:
            # An older server may answer with a bare status, which alone says nothing.
            if fault.kind is not Kind.UNAVAILABLE:
                raise
        try:
            await self._handshake.session(_OURSELVES, {})
            found.add("handshake")
        except (Fault, ForeignError):
            if not found:
                raise
        return frozenset(found)

    async def hello(self) -> Json:
        if "modern" in await self.eras():
            return await self._ask_modern("server/discover", {})
        return (await self._handshake.session(_OURSELVES, {})).greeting or {}

    async def ask(self, method: str, params: Json) -> Json:
        if "modern" in await self.eras():
            return await self._ask_modern(method, params)
        return await self._handshake.request(_OURSELVES, {}, method, params, _NOBODY, {})

    async def _ask_modern(self, method: str, params: Json) -> Json:
        return await self._modern.request(method, {**params, "_meta": envelope(self._info)}, _NOBODY, {})

    async def carry(self, call: Call, era: Era, params: Json, talk: Talk) -> Json:
        more = {"x-correlation-id": call.id, **call.trace}
        if era == "modern":
            schema = call.route.header_schema if call.route else None
            return await self._modern.request(call.method, params, talk, more, schema)
        client = call.client
        who: Who = (call.caller.principal, frozenset(client.capabilities))
        return await self._handshake.request(
            who, client.capabilities, call.method, params, talk, more, client.log_level
        )

    async def listen(self, hearing: Talk, uris: frozenset[str]) -> None:
        if "modern" not in await self.eras():
            await self._handshake.listen(_OURSELVES, hearing)
            return
        params: Json = {"notifications": wanted(uris), "_meta": envelope(self._info)}
        await self._modern.request("subscriptions/listen", params, hearing, {})

    async def watch(self, added: frozenset[str], gone: frozenset[str]) -> bool:
        if "modern" in await self.eras():
            return False
        for method, uris in (("resources/subscribe", added), ("resources/unsubscribe", gone)):
            for uri in uris:
                await self.ask(method, {"uri": uri})
        return True

    async def close(self) -> None:
        await self._handshake.close()
        self._close_pool()
