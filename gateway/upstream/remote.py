"""A remote server behind the one small Protocol of every backend, whatever it is reached by."""

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol, cast

from mcp.types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from gateway.contract import MODERN, Call, Caller, Change, Json, Manifest, Offer
from gateway.errors import Fault, ForeignError, Kind
from gateway.upstream.breaker import Breaker
from gateway.upstream.follow import Follower, Hearing
from gateway.upstream.talk import Conversation, Talk

Era = Literal["modern", "handshake"]
"""The revision without a handshake, or the ones before it."""

NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LISTS: Final = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
)
_MAX_PAGES: Final = 100
_METHOD_NOT_FOUND: Final = -32601
_TROUBLE: Final = frozenset({Kind.UNAVAILABLE, Kind.TIMEOUT})


class Link(Protocol):
    """A way to one server. Every method raises `Fault` when it cannot be reached, `ForeignError` when it refuses."""

    async def eras(self) -> frozenset[Era]:
        """Which eras the server speaks: probed once, and again after `doubt`."""
        ...

    def doubt(self) -> None:
        """It could not be reached: what it speaks may have changed."""
        ...

    async def hello(self) -> Json:
        """Its capabilities and instructions."""
        ...

    async def ask(self, method: str, params: Json) -> Json:
        """A request of the gateway's own."""
        ...

    async def carry(self, call: Call, era: Era, params: Json, talk: Talk) -> Json:
        """A client's call, in that era."""
        ...

    async def listen(self, hearing: Talk, uris: frozenset[str]) -> None:
        """Hear of changes, and of these resources' updates, until the server ends it."""
        ...

    async def watch(self, added: frozenset[str], gone: frozenset[str]) -> bool:
        """Tell the server of them where that needs no new `listen`; false when it does."""
        ...

    async def close(self) -> None: ...


class RemoteBackend:
    """Asked in the client's own era when it speaks it, and bridged otherwise. Its annotations lower no effect."""

    trusted = False

    def __init__(self, namespace: str, manifest: Manifest, link: Link, info: Json) -> None:
        self.namespace = namespace
        self.manifest = manifest
        self.breaker = Breaker(namespace)
        self._link = link
        self._info = info
        self._listeners: list[Callable[[Change], None]] = []
        self._watched: frozenset[str] = frozenset()
        self._follower = Follower(namespace, self._listen)

    async def open(self) -> None:
        self._follower.start()

    async def close(self) -> None:
        await self._follower.stop()
        await self._link.close()

    # ---- what it lists ----

    async def offer(self, caller: Caller | None) -> Offer:
        hello = await self._link.hello()
        capabilities = cast("Json", hello.get("capabilities") or {})
        lists: dict[str, tuple[Json, ...]] = {}
        for method, key, capability in _LISTS:
            lists[key] = await self._all(method, key) if capability in capabilities else ()
        return Offer(
            tools=lists["tools"],
            resources=lists["resources"],
            templates=lists["resourceTemplates"],
            prompts=lists["prompts"],
            capabilities=capabilities,
            instructions=str(hello.get("instructions") or ""),
            info=cast("Json", hello.get("serverInfo") or {}),
        )

    async def _all(self, method: str, key: str) -> tuple[Json, ...]:
        items: list[Json] = []
        params: Json = {}
        for _ in range(_MAX_PAGES):
            try:
                page = await self._link.ask(method, params)
            except ForeignError as exc:
                if exc.code == _METHOD_NOT_FOUND:
                    break  # it has the capability but not this list
                raise
            items.extend(page.get(key) or ())
            if (cursor := page.get("nextCursor")) is None:
                break
            params = {"cursor": cursor}
        return tuple(items)

    # ---- a call ----

    async def send(self, call: Call) -> Json:
        self.breaker.enter()
        try:
            result = await self._carry(call)
        except Fault as fault:
            if fault.kind in _TROUBLE:
                self.breaker.failed()
                self._link.doubt()
            else:
                self.breaker.left()
            raise
        except BaseException:
            self.breaker.left()
            raise
        self.breaker.succeeded()
        return result

    async def _carry(self, call: Call) -> Json:
        eras, client, route = await self._link.eras(), call.client, call.route
        modern = "modern" in eras and (client.modern or "handshake" not in eras)
        talk = Conversation(call)
        meta = talk.meta(modern=modern, capabilities=client.capabilities, info=client.info or self._info)
        params: Json = {**call.params, "_meta": meta}
        if route is not None and (key := NAMED.get(call.method)) is not None:
            params[key] = route.name
        return await self._link.carry(call, "modern" if modern else "handshake", params, talk)

    # ---- what changes ----

    def on_change(self, listener: Callable[[Change], None]) -> None:
        self._listeners.append(listener)

    def _changed(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    async def watch(self, uris: frozenset[str]) -> None:
        added, gone = uris - self._watched, self._watched - uris
        self._watched = uris
        if (added or gone) and not await self._link.watch(added, gone):
            await self._follower.restart()

    async def _listen(self) -> None:
        await self._link.listen(Hearing(self._changed), self._watched)


def envelope(info: Json) -> Json:
    """The `_meta` of the gateway's own requests in the modern era: it can do nothing by itself."""
    return {PROTOCOL_VERSION_META_KEY: MODERN, CLIENT_CAPABILITIES_META_KEY: {}, CLIENT_INFO_META_KEY: info}


def wanted(uris: frozenset[str]) -> Json:
    """What to listen for."""
    flags: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    return {**flags, "resourceSubscriptions": sorted(uris)} if uris else flags


def speaks_modern(discovered: Json) -> bool:
    versions: Any = discovered.get("supportedVersions")
    return isinstance(versions, list) and MODERN in versions
