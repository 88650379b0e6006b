"""A remote server behind the one small Protocol of every backend: asked in the client's era when it speaks it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, cast

from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from gateway.contract import MODERN, Call, Caller, Change, Json, Manifest, Offer
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.breaker import Breaker
from gateway.upstream.http.follow import Follower, Hearing
from gateway.upstream.http.legacy import LegacyHttp, Who
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.talk import Conversation, Nobody

Era = Literal["modern", "handshake"]

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_OURSELVES: Final[Who] = ("", frozenset())
_NOBODY: Final = Nobody()
_LISTS: Final = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
)
_MAX_PAGES: Final = 100
_TROUBLE: Final = frozenset({Kind.UNAVAILABLE, Kind.TIMEOUT})


class HttpBackend:
    trusted = False

    def __init__(
        self,
        namespace: str,
        manifest: Manifest,
        modern: ModernHttp,
        handshake: LegacyHttp,
        info: Json,
        close_pool: Callable[[], None],
    ) -> None:
        self._close_pool = close_pool
        self.namespace = namespace
        self.manifest = manifest
        self.breaker = Breaker(namespace)
        self._modern = modern
        self._handshake = handshake
        self._info = info
        self._eras: frozenset[Era] | None = None
        self._probing = asyncio.Lock()
        self._listeners: list[Callable[[Change], None]] = []
        self._watched: frozenset[str] = frozenset()
        self._follower = Follower(namespace, self._listen)

    async def open(self) -> None:
        self._follower.start()

    async def close(self) -> None:
        await self._follower.stop()
        await self._handshake.close()
        self._close_pool()

    # ---- which eras it speaks ----

    async def eras(self) -> frozenset[Era]:
        """Probed once, and again after a failure to reach it."""
        if self._eras is None:
            async with self._probing:
                if self._eras is None:
                    self._eras = await self._probe()
        return self._eras

    async def _probe(self) -> frozenset[Era]:
        found: set[Era] = set()
        try:
            discovered = await self._ask_modern("server/discover", {})
            if MODERN in cast("list[Any]", discovered.get("supportedVersions") or []):
                found.add("modern")
        except ForeignError:
            pass
        except Fault as fault:
            if fault.kind not in _TROUBLE:
                raise
        try:
            await self._handshake.session(_OURSELVES, {})
            found.add("handshake")
        except (Fault, ForeignError):
            if not found:
                raise
        return frozenset(found)

    # ---- what it lists ----

    async def offer(self, caller: Caller | None) -> Offer:
        modern = "modern" in await self.eras()
        ask = self._ask_modern if modern else self._ask_handshake
        if modern:
            hello = await self._ask_modern("server/discover", {})
        else:
            hello = (await self._handshake.session(_OURSELVES, {})).greeting or {}
        capabilities = cast("Json", hello.get("capabilities") or {})
        lists: dict[str, tuple[Json, ...]] = {}
        for method, key, capability in _LISTS:
            lists[key] = await self._all(ask, method, key) if capability in capabilities else ()
        return Offer(
            tools=lists["tools"],
            resources=lists["resources"],
            templates=lists["resourceTemplates"],
            prompts=lists["prompts"],
            capabilities=capabilities,
            instructions=str(hello.get("instructions") or ""),
            info=cast("Json", hello.get("serverInfo") or {}),
        )

    async def _all(self, ask: Any, method: str, key: str) -> tuple[Json, ...]:
        items: list[Json] = []
        params: Json = {}
        for _ in range(_MAX_PAGES):
            try:
                page: Json = await ask(method, params)
            except ForeignError as exc:
                if exc.code == -32601:
                    break  # it has the capability but not this list
                raise
            items.extend(page.get(key) or ())
            if (cursor := page.get("nextCursor")) is None:
                break
            params = {"cursor": cursor}
        return tuple(items)

    async def _ask_modern(self, method: str, params: Json) -> Json:
        return await self._modern.request(method, {**params, "_meta": self._envelope()}, _NOBODY, {})

    def _envelope(self) -> Json:
        """Of the gateway's own requests: it can do nothing by itself."""
        return {
            PROTOCOL_VERSION_META_KEY: MODERN,
            CLIENT_CAPABILITIES_META_KEY: {},
            CLIENT_INFO_META_KEY: self._info,
        }

    async def _ask_handshake(self, method: str, params: Json) -> Json:
        return await self._handshake.request(_OURSELVES, {}, method, params, _NOBODY, {})

    # ---- a call ----

    async def send(self, call: Call) -> Json:
        self.breaker.enter()
        try:
            result = await self._send(call)
        except Fault as fault:
            if fault.kind in _TROUBLE:
                self.breaker.failed()
                self._eras = None
            else:
                self.breaker.left()
            raise
        except BaseException:
            self.breaker.left()
            raise
        self.breaker.succeeded()
        return result

    async def _send(self, call: Call) -> Json:
        eras, client = await self.eras(), call.client
        modern = "modern" in eras and (client.modern or "handshake" not in eras)
        talk = Conversation(call)
        params: Json = {
            **call.params,
            "_meta": talk.meta(modern=modern, capabilities=client.capabilities, info=client.info or self._info),
        }
        route = call.route
        if route is not None and (key := _NAMED.get(call.method)) is not None:
            params[key] = route.name
        more = {"x-correlation-id": call.id, **call.trace}
        if modern:
            schema = route.header_schema if route else None
            return await self._modern.request(call.method, params, talk, more, schema)
        who: Who = (call.caller.principal, frozenset(client.capabilities))
        return await self._handshake.request(
            who, client.capabilities, call.method, params, talk, more, client.log_level
        )

    # ---- what changes ----

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def _changed(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    async def watch(self, uris: frozenset[str]) -> None:
        added, gone = uris - self._watched, self._watched - uris
        self._watched = uris
        if "modern" in await self.eras():
            await self._follower.restart()
            return
        for method, changed in (("resources/subscribe", added), ("resources/unsubscribe", gone)):
            for uri in changed:
                await self._ask_handshake(method, {"uri": uri})

    async def _listen(self) -> None:
        hearing = Hearing(self._changed)
        if "modern" not in await self.eras():
            await self._handshake.listen(_OURSELVES, hearing)
            return
        wanted: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        if self._watched:
            wanted["resourceSubscriptions"] = sorted(self._watched)
        params: Json = {"notifications": wanted, "_meta": self._envelope()}
        await self._modern.request("subscriptions/listen", params, hearing, {})
