"""Events from connected editors: buffered for `godot://editor/events` and sent to subscribers of changed resources."""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.types import ResourceUpdatedNotification, ResourceUpdatedNotificationParams, SubscriptionsListenRequestParams

from gateway.contract import Caller, Host, Json

EVENTS_URI: Final = "godot://editor/events"
EVENT_META: Final = "godot:event"
_MAX_EVENTS: Final = 100
_LIST_RESOURCES: Final = ("godot://scenes", "godot://scripts", "godot://assets", "godot://resources")
_NEW_FILES: Final = frozenset({"scene_created", "script_created", "filesystem_changed"})


class EditorEvents:
    """Buffers the latest events of each tenant and notifies the sessions that subscribe to changed resources."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._latest: dict[str, deque[Json]] = {}
        self._listeners: dict[ServerSession, frozenset[str]] = {}

    def latest(self, caller: Caller) -> list[Json]:
        """Return the buffered events of the caller's tenant, newest last."""
        return list(self._latest.get(caller.tenant, ()))

    def record(self, peer: Json, event: Json) -> None:
        """Buffer an event and notify subscribers. Runs in the call context of the editor's owner."""
        tenant = self._host.current_call().caller.tenant
        entry: Json = {"at": round(time.time(), 3), "project": peer["name"], **event}
        self._latest.setdefault(tenant, deque(maxlen=_MAX_EVENTS)).append(entry)
        # The task inherits the call context, so the gateway notifies only this tenant.
        self._host.spawn(self._notify(entry))

    async def listen(self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams) -> Json:
        """Handle `subscriptions/listen` from the gateway: register the session until the request is cancelled."""
        self._listeners[ctx.session] = frozenset(params.notifications.resource_subscriptions or ())
        try:
            await asyncio.Event().wait()
        finally:
            del self._listeners[ctx.session]
        return {}

    async def _notify(self, event: Json) -> None:
        changed = set(changed_resources(event))
        for session, watched in list(self._listeners.items()):
            for uri in sorted(changed & watched):
                params = ResourceUpdatedNotificationParams(uri=uri, _meta={EVENT_META: event})
                await session.send_notification(ResourceUpdatedNotification(params=params))


def changed_resources(event: Json) -> Iterator[str]:
    """Yield the URIs of the resources that an event changes, each with and without the project's name."""
    yield EVENTS_URI
    name, scene = event["event"], event["data"].get("scene")
    changed: tuple[str, ...] = _LIST_RESOURCES if name in _NEW_FILES else ()
    if name == "scene_saved" and isinstance(scene, str):
        scene_uri = f"godot://scene/{quote(scene.removeprefix('res://'))}"
        changed = (*changed, scene_uri, f"{scene_uri}/tree")
    project = quote(PurePath(event["project"]).name)
    for uri in changed:
        yield uri
        yield f"{uri}?project={project}"
