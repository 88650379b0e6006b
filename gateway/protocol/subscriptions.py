"""Who wants to hear of which change: every open stream of this worker has an ear here.

`subscriptions/listen`: one long answer that tells of changes until the client leaves.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, cast

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.view import View
from gateway.contract import Backend, Call, Caller, ClientProfile, Json, ListChange, ResourceInterest, Result
from gateway.errors import Fault, ForeignError
from gateway.protocol.context import seen
from gateway.protocol.stream_limits import StreamLimits

log = logging.getLogger("gatehouse.hub")

BACKLOG: Final = 256

Target = tuple[str, str]

"""A backend's namespace and its own URI for a resource."""

_Wanted = tuple[Caller, ClientProfile, frozenset[Target]]

Hears = Callable[[str, ListChange], tuple[str, Json] | None]

"""The notification (method and params) that a change means to this listener; None: nothing."""

LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}

UPDATED: Final = "notifications/resources/updated"


def updated(uri: str, change: ListChange, meta: Json | None = None) -> Json:
    """The params that tell of a resource's update, with whatever else its backend said."""
    more = change.details or {}
    known: Json = {**(more.get("_meta") or {}), **(meta or {})}
    return {**more, "uri": uri, "_meta": known} if known else {**more, "uri": uri}


class Listener:
    """A bounded queue of notifications; a stream whose client stopped reading is ended at the bound."""

    def __init__(self, hears: Hears) -> None:
        self.hears = hears
        self._queue: asyncio.Queue[tuple[str, Json] | None] = asyncio.Queue(BACKLOG)

    async def next(self) -> tuple[str, Json] | None:
        """The next notification; None when the stream should end."""
        return await self._queue.get()

    def put(self, notification: tuple[str, Json]) -> None:
        try:
            self._queue.put_nowait(notification)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        while self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)


class Subscriptions:
    def __init__(self, backend: Callable[[str], Backend | None]) -> None:
        self._backend = backend
        self._ears: set[Listener] = set()
        self._wants: dict[Hashable, _Wanted] = {}
        self._watching: dict[str, tuple[Backend, list[ResourceInterest]]] = {}
        self._syncing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many listen."""
        return len(self._ears)

    def attach(self, hears: Hears) -> Listener:
        ear = Listener(hears)
        self._ears.add(ear)
        return ear

    def detach(self, ear: Listener) -> None:
        self._ears.discard(ear)

    def changed(self, namespace: str, change: ListChange) -> None:
        self._catch_up(namespace)
        for ear in list(self._ears):
            if (notification := ear.hears(namespace, change)) is not None:
                ear.put(notification)

    async def want(self, who: Hashable, caller: Caller, client: ClientProfile, targets: frozenset[Target]) -> None:
        """From now on `who`, that caller's client, wants updates of exactly these; backends are told who wants what.

        Raises `Fault` or `ForeignError` when a backend refuses; then `who` wants what it wanted before.
        """
        before = self._wants.get(who)
        wanted = self._put(who, (caller, client, targets) if targets else None)
        namespaces = _namespaces(before) | _namespaces(wanted)
        try:
            await self._sync_all(namespaces)
        except (Fault, ForeignError):
            if self._wants.get(who) is wanted:  # nothing newer
                self._put(who, before)
                self._spawn(self._sync_all(namespaces))
            raise

    def drop(self, who: Hashable) -> None:
        """`who` wants nothing any more; backends are told soon."""
        if (before := self._wants.pop(who, None)) is not None:
            self._spawn(self._sync_all(_namespaces(before)))

    def _put(self, who: Hashable, wanted: _Wanted | None) -> _Wanted | None:
        if wanted is None:
            self._wants.pop(who, None)
        else:
            self._wants[who] = wanted
        return wanted

    async def _sync_all(self, namespaces: set[str]) -> None:
        for namespace in sorted(namespaces):
            await self._sync(namespace)

    async def _sync(self, namespace: str) -> None:
        """Added up at this moment: meanwhile others may have come to want more."""
        wants = [
            ResourceInterest(caller, client, uris)
            for caller, client, targets in self._wants.values()
            if (uris := frozenset(uri for ns, uri in targets if ns == namespace))
        ]
        backend, told = self._backend(namespace), self._watching.get(namespace)
        if backend is None or (told == (backend, wants) if told else not wants):
            return
        if wants:
            self._watching[namespace] = (backend, wants)
        else:
            self._watching.pop(namespace, None)
        await backend.set_subscriptions(wants)

    def _catch_up(self, namespace: str) -> None:
        """A backend that took another's place has to be told what is wanted of it."""
        told = self._watching.get(namespace)
        if told is not None and self._backend(namespace) not in (None, told[0]):
            self._spawn(self._sync(namespace))

    def _spawn(self, syncing: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await syncing
            except (Fault, ForeignError) as exc:
                log.info("a backend could not be told what is wanted: %s", exc)

        task = asyncio.create_task(run())
        self._syncing.add(task)
        task.add_done_callback(self._syncing.discard)

    def close(self) -> None:
        """End every stream, as a server that stops should."""
        for ear in self._ears:
            ear.end()


def _namespaces(wanted: _Wanted | None) -> set[str]:
    return {namespace for namespace, _ in wanted[2]} if wanted is not None else set()


SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

_FLAGS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}


class ListenHandler:
    """The end of the short path for a subscription."""

    def __init__(self, catalogue: Catalogue, hub: Subscriptions, caps: StreamLimits) -> None:
        self._catalogue = catalogue
        self._hub = hub
        self._caps = caps

    async def __call__(self, call: Call) -> Result:
        with self._caps.held(call.caller, "subscriptions"):
            return await self._listen(call)

    async def _listen(self, call: Call) -> Result:
        view = seen(self._catalogue, call)
        granted, targets = _grant(cast("Json", call.params["notifications"]), view)
        meta: Json = {SUBSCRIPTION_ID: call.request_id}

        def hears(namespace: str, change: ListChange) -> tuple[str, Json] | None:
            if namespace not in self._namespaces(call) or not call.caller.may_receive(change.owner):
                return None
            if change.kind == "resource":
                shown = targets.get((namespace, change.uri))
                return (UPDATED, updated(shown, change, meta)) if shown is not None else None
            return (LIST_CHANGED[change.kind], {"_meta": meta}) if granted.get(_FLAGS[change.kind]) else None

        # Attached before the acknowledgement is written: what changes meanwhile is not lost.
        ear = self._hub.attach(hears)
        try:
            await self._hub.want(ear, call.caller, call.client, frozenset(targets))
            await call.wire.notify(
                "notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": granted}
            )
            while (notification := await ear.next()) is not None:
                await call.wire.notify(*notification)
        finally:
            self._hub.detach(ear)
            self._hub.drop(ear)
        return {"_meta": meta}

    def _namespaces(self, call: Call) -> set[str]:
        view = self._catalogue.view(call.caller, call.endpoint)
        return set(view.namespaces) if view else set()


def _grant(wanted: Json, view: View) -> tuple[Json, dict[Target, str]]:
    """What is acknowledged: only resources that are in the caller's view, under the URIs the client used."""
    granted: Json = {flag: True for flag in _FLAGS.values() if wanted.get(flag) is True}
    uris = cast("list[Any]", wanted.get("resourceSubscriptions") or [])
    targets: dict[Target, str] = {}
    for uri in uris:
        if isinstance(uri, str) and (route := view.resource(uri)) is not None:
            targets[(route.namespace, route.name)] = uri
    if targets:
        granted["resourceSubscriptions"] = list(targets.values())
    return granted, targets
