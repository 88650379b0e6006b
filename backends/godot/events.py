"""What editors tell unasked: kept for `godot://editor/events`, and told to those who watch what it changed."""

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

EVENTS: Final = "godot://editor/events"
META: Final = "godot:event"
_KEPT: Final = 100
_LISTS: Final = ("godot://scenes", "godot://scripts", "godot://assets", "godot://resources")
_NEW_FILES: Final = frozenset({"scene_created", "script_created", "filesystem_changed"})


class Events:
    """The latest of each tenant, and the one stream on which the gateway hears of changes."""

    def __init__(self, home: Host) -> None:
        self._home = home
        self._latest: dict[str, deque[Json]] = {}
        self._listening: dict[ServerSession, frozenset[str]] = {}

    def latest(self, caller: Caller) -> list[Json]:
        """Newest last."""
        return list(self._latest.get(caller.tenant, ()))

    def told(self, peer: Json, event: Json) -> None:
        """An editor says so; the call in progress is its owner's."""
        tenant = self._home.current_call().caller.tenant
        known: Json = {"at": round(time.time(), 3), "project": peer["name"], **event}
        self._latest.setdefault(tenant, deque(maxlen=_KEPT)).append(known)
        # The new task is within the same call, so that only its tenant hears of it.
        self._home.spawn(self._tell(known))

    async def listen(self, ctx: ServerRequestContext[Any], params: SubscriptionsListenRequestParams) -> Json:
        """The gateway's own subscription, for as long as it wants these resources."""
        self._listening[ctx.session] = frozenset(params.notifications.resource_subscriptions or ())
        try:
            await asyncio.Event().wait()
        finally:
            del self._listening[ctx.session]
        return {}

    async def _tell(self, event: Json) -> None:
        changed = set(touched(event))
        for session, watched in list(self._listening.items()):
            for uri in sorted(changed & watched):
                params = ResourceUpdatedNotificationParams(uri=uri, _meta={META: event})
                await session.send_notification(ResourceUpdatedNotification(params=params))


def touched(event: Json) -> Iterator[str]:
    """The resources that are others after it, each with and without the project's name."""
    yield EVENTS
    name, scene = event["event"], event["data"].get("scene")
    changed: tuple[str, ...] = _LISTS if name in _NEW_FILES else ()
    if name == "scene_saved" and isinstance(scene, str):
        at = f"godot://scene/{quote(scene.removeprefix('res://'))}"
        changed = (*changed, at, f"{at}/tree")
    project = quote(PurePath(event["project"]).name)
    for uri in changed:
        yield uri
        yield f"{uri}?project={project}"
