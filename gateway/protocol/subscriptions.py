"""Routes change notifications to the open streams of this worker, and keeps the subscriptions at the backends in sync.

`GetStreams` (handshake era) and `ListenHandler`, which serves `subscriptions/listen` (modern era), attach listeners.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, cast

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.view import View
from gateway.contract import (
    Backend,
    Call,
    Caller,
    ClientProfile,
    Json,
    ListChange,
    ResourceInterest,
    Result,
    declares_tasks,
)
from gateway.errors import Fault, ForeignError
from gateway.protocol.context import require_view
from gateway.protocol.stream_limits import StreamLimits

log = logging.getLogger("gatehouse.protocol")

BACKLOG: Final = 256
"""Maximum notifications queued for one stream."""
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
TASK_CHANGED: Final = "notifications/tasks"
"""Of 2026-07-28, for the tasks that a client listens to."""
TASK_STATUS: Final = "notifications/tasks/status"
"""Of 2025-11-25, for all tasks of the client."""
MAX_TASK_IDS: Final = 256

LIST_CHANGED: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}

_FLAGS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}

Target = tuple[str, str]
"""A backend's namespace and its own URI of a resource."""
ChangeMapper = Callable[[str, ListChange], tuple[str, Json] | None]
"""Maps a backend's namespace and a change to a notification (method and params); None if it is not relevant."""
_Interest = tuple[Caller, ClientProfile, frozenset[Target]]


def update_params(uri: str, change: ListChange, meta: Json | None = None) -> Json:
    """Return the params of a resource update notification, with the details that the backend sent."""
    details = change.details or {}
    merged_meta: Json = {**(details.get("_meta") or {}), **(meta or {})}
    return {**details, "uri": uri, "_meta": merged_meta} if merged_meta else {**details, "uri": uri}


class Listener:
    """The bounded notification queue of one stream; the stream ends if the queue overflows."""

    def __init__(self, map_change: ChangeMapper) -> None:
        self.map_change = map_change
        self._queue: asyncio.Queue[tuple[str, Json] | None] = asyncio.Queue(BACKLOG)

    async def next(self) -> tuple[str, Json] | None:
        """Wait for the next notification; None means that the stream has to end."""
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
    """The listeners of this worker, and the resources in which they are interested."""

    def __init__(self, backend: Callable[[str], Backend | None]) -> None:
        self._backend = backend
        self._listeners: set[Listener] = set()
        self._observers: list[Callable[[ListChange], None]] = []
        self._interests: dict[Hashable, _Interest] = {}
        self._synced: dict[str, tuple[Backend, list[ResourceInterest]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of listeners."""
        return len(self._listeners)

    def attach(self, map_change: ChangeMapper) -> Listener:
        listener = Listener(map_change)
        self._listeners.add(listener)
        return listener

    def observe(self, observer: Callable[[ListChange], None]) -> None:
        """Call `observer` for every change, for as long as the gateway runs."""
        self._observers.append(observer)

    def detach(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    def publish(self, namespace: str, change: ListChange) -> None:
        """Queue the notification of a change at every listener that it concerns."""
        self._resync_if_replaced(namespace)
        for observer in self._observers:
            observer(change)
        for listener in list(self._listeners):
            if (notification := listener.map_change(namespace, change)) is not None:
                listener.put(notification)

    async def set_interest(
        self, owner: Hashable, caller: Caller, client: ClientProfile, targets: frozenset[Target]
    ) -> None:
        """Replace the resources of which `owner` wants updates, and subscribe at their backends.

        Raises `Fault` or `ForeignError` if a backend refuses; the previous resources are then restored.
        """
        previous = self._interests.get(owner)
        interest = self._store(owner, (caller, client, targets) if targets else None)
        namespaces = _namespaces(previous) | _namespaces(interest)
        try:
            await self._sync_all(namespaces)
        except (Fault, ForeignError):
            if self._interests.get(owner) is interest:  # It has not been replaced meanwhile.
                self._store(owner, previous)
                self._spawn(self._sync_all(namespaces))
            raise

    def drop_interest(self, owner: Hashable) -> None:
        """Remove the interest of `owner`; its subscriptions at the backends end in the background."""
        if (previous := self._interests.pop(owner, None)) is not None:
            self._spawn(self._sync_all(_namespaces(previous)))

    def _store(self, owner: Hashable, interest: _Interest | None) -> _Interest | None:
        if interest is None:
            self._interests.pop(owner, None)
        else:
            self._interests[owner] = interest
        return interest

    async def _sync_all(self, namespaces: set[str]) -> None:
        for namespace in sorted(namespaces):
            await self._sync(namespace)

    async def _sync(self, namespace: str) -> None:
        """Send the current interests of all owners to the backend, if they changed."""
        interests = [
            ResourceInterest(caller, client, uris)
            for caller, client, targets in self._interests.values()
            if (uris := frozenset(uri for ns, uri in targets if ns == namespace))
        ]
        backend, synced = self._backend(namespace), self._synced.get(namespace)
        if backend is None or (synced == (backend, interests) if synced else not interests):
            return
        if interests:
            self._synced[namespace] = (backend, interests)
        else:
            self._synced.pop(namespace, None)
        await backend.set_subscriptions(interests)

    def _resync_if_replaced(self, namespace: str) -> None:
        """Send the interests to a backend that replaced another one of the same namespace."""
        synced = self._synced.get(namespace)
        if synced is not None and self._backend(namespace) not in (None, synced[0]):
            self._spawn(self._sync(namespace))

    def _spawn(self, sync: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await sync
            except (Fault, ForeignError) as exc:
                log.info("subscriptions: synchronization with a backend failed; some updates may be missing: %s", exc)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End every stream, because the server stops."""
        for listener in self._listeners:
            listener.end()


def _namespaces(interest: _Interest | None) -> set[str]:
    return {namespace for namespace, _ in interest[2]} if interest is not None else set()


class ListenHandler:
    """Handles `subscriptions/listen`: one long response with notifications until the client disconnects."""

    def __init__(
        self,
        catalogue: Catalogue,
        subscriptions: Subscriptions,
        limits: StreamLimits,
        open_task_id: Callable[[Caller, Json], str | None],
        follow_tasks: Callable[[Call, frozenset[str]], Coroutine[Any, Any, None]],
    ) -> None:
        """`open_task_id` returns None for a task that the caller does not own; `follow_tasks` announces changes of
        tasks that servers run."""
        self._catalogue = catalogue
        self._subscriptions = subscriptions
        self._limits = limits
        self._open_task_id = open_task_id
        self._follow_tasks = follow_tasks

    async def __call__(self, call: Call) -> Result:
        with self._limits.hold(call.caller, "subscriptions"):
            return await self._listen(call)

    async def _listen(self, call: Call) -> Result:
        view = require_view(self._catalogue, call)
        requested = cast("Json", call.params["notifications"])
        granted, targets = _grant(requested, view)
        task_ids = self._grant_tasks(call, requested, granted)
        meta: Json = {SUBSCRIPTION_ID: call.request_id}

        def map_change(namespace: str, change: ListChange) -> tuple[str, Json] | None:
            if namespace not in self._namespaces(call) or not call.caller.may_receive(change.owner):
                return None
            if change.kind == "task":
                if change.uri not in task_ids:
                    return None
                return TASK_CHANGED, {**(change.details or {}).get("modern", {}), "_meta": meta}
            if change.kind == "resource":
                uri = targets.get((namespace, change.uri))
                return (RESOURCE_UPDATED, update_params(uri, change, meta)) if uri is not None else None
            return (LIST_CHANGED[change.kind], {"_meta": meta}) if granted.get(_FLAGS[change.kind]) else None

        # Attached before the acknowledgement is sent, so that no change in between is lost.
        listener = self._subscriptions.attach(map_change)
        following = asyncio.create_task(self._follow_tasks(call, task_ids)) if task_ids else None
        try:
            await self._subscriptions.set_interest(listener, call.caller, call.client, frozenset(targets))
            await call.wire.notify(
                "notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": granted}
            )
            while (notification := await listener.next()) is not None:
                await call.wire.notify(*notification)
        finally:
            if following is not None:
                following.cancel()
            self._subscriptions.detach(listener)
            self._subscriptions.drop_interest(listener)
        return {"_meta": meta}

    def _grant_tasks(self, call: Call, requested: Json, granted: Json) -> frozenset[str]:
        """Return the caller's own tasks among those requested, and add them to the filter to acknowledge."""
        ids: Any = requested.get("taskIds")
        if not isinstance(ids, list) or not declares_tasks(call.client.capabilities):
            return frozenset()
        own = [
            id
            for id in cast("list[Any]", ids)[:MAX_TASK_IDS]
            if isinstance(id, str) and self._open_task_id(call.caller, {"taskId": id}) is not None
        ]
        if own:
            granted["taskIds"] = own
        return frozenset(own)

    def _namespaces(self, call: Call) -> set[str]:
        view = self._catalogue.view(call.caller, call.endpoint)
        return set(view.namespaces) if view else set()


def _grant(requested: Json, view: View) -> tuple[Json, dict[Target, str]]:
    """Return the filter to acknowledge, and the client's URI of each resource that is in the caller's view."""
    granted: Json = {flag: True for flag in _FLAGS.values() if requested.get(flag) is True}
    uris = cast("list[Any]", requested.get("resourceSubscriptions") or [])
    targets: dict[Target, str] = {}
    for uri in uris:
        if isinstance(uri, str) and (route := view.find_resource(uri)) is not None:
            targets[(route.namespace, route.name)] = uri
    if targets:
        granted["resourceSubscriptions"] = list(targets.values())
    return granted, targets
