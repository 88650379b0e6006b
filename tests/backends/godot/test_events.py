"""Editor events reach the subscribers of the same tenant, in both protocol eras, and no other tenant."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.types import ResourceUpdatedNotification

from backends.godot.events import EVENTS_URI, changed_resources
from tests.backends.godot.editors import BridgeEndpoint, FakeEditor, fake_editor

MODERN = "2026-07-28"
GAME = "/home/us/my game"


class NotificationRecorder:
    """Records the resource update notifications of a client."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self._received = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            meta = message.params.meta
            assert meta is not None
            self.received.append((str(message.params.uri), meta["godot:event"]["event"]))
            self._received.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self._received.clear()
                await self._received.wait()


@asynccontextmanager
async def subscribed_client(
    gateway: Any, era: str, editor: FakeEditor, *uris: str
) -> AsyncIterator[NotificationRecorder]:
    """Open a client and wait until its subscription is active."""
    notifications = NotificationRecorder()
    async with gateway.client(era, message_handler=notifications) as client:
        if era == MODERN:
            async with client.listen(resource_subscriptions=[EVENTS_URI, *uris]):
                yield notifications
            return
        for uri in (EVENTS_URI, *uris):
            await client.subscribe_resource(uri)
        # A legacy client opens its stream in the background: send events until one arrives.
        while not notifications.received:
            await editor.send_event("probe", {})
            await asyncio.sleep(0.02)
        yield notifications


async def test_subscriber_is_notified_of_editor_events(harness: Any, era: str) -> None:
    scene = "godot://scene/levels/one.tscn"
    async with fake_editor(BridgeEndpoint(harness), GAME) as editor:
        async with subscribed_client(
            harness.gateway, era, editor, scene, "godot://scenes?project=my%20game"
        ) as notifications:
            await editor.send_event("scene_saved", {"scene": "res://levels/one.tscn"})
            await editor.send_event("filesystem_changed", {})
            await editor.send_event("last", {})
            await notifications.wait_until(lambda: (EVENTS_URI, "last") in notifications.received)
        received = [each for each in notifications.received if each[1] != "probe"]
        assert received == [
            (EVENTS_URI, "scene_saved"),
            (scene, "scene_saved"),
            (EVENTS_URI, "filesystem_changed"),
            ("godot://scenes?project=my%20game", "filesystem_changed"),
            (EVENTS_URI, "last"),
        ]


async def test_events_are_not_visible_to_another_tenant(open_harness: Any, era: str) -> None:
    async with open_harness(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs, bridge = await ours.for_tenant("acme"), BridgeEndpoint(ours)
        async with fake_editor(bridge, GAME) as editor, fake_editor(bridge, GAME, "acme") as other:
            async with subscribed_client(theirs.gateway, era, other) as notifications:
                await editor.send_event("secret", {"scene": "res://secret.tscn"})
                while "secret" not in await read_events(ours):
                    pass
                await other.send_event("own", {})
                await notifications.wait_until(lambda: (EVENTS_URI, "own") in notifications.received)
            assert (EVENTS_URI, "secret") not in notifications.received
            assert "secret" not in await read_events(theirs)


async def read_events(harness: Any) -> str:
    return (await harness.gateway.post("resources/read", {"uri": EVENTS_URI})).text


async def test_event_buffer_is_bounded_and_drops_oversized_events(harness: Any) -> None:
    async with fake_editor(BridgeEndpoint(harness), GAME) as editor:
        await editor.send_event("huge", {"x": "y" * 70_000})
        for number in range(120):
            await editor.send_event(f"number-{number}.", {})
        while "number-119." not in await read_events(harness):
            pass
        buffered = await read_events(harness)
        assert "huge" not in buffered
        assert "number-19." not in buffered
        assert "number-20." in buffered


@pytest.mark.parametrize(
    ("event", "uris"),
    [
        ("node_added", set()),
        ("scene_saved", {"godot://scene/a%20b.tscn", "godot://scene/a%20b.tscn/tree"}),
        ("script_created", {f"godot://{each}" for each in ("scenes", "scripts", "assets", "resources")}),
    ],
)
def test_event_changes_resources_with_and_without_the_project_name(event: str, uris: set[str]) -> None:
    received = changed_resources({"event": event, "data": {"scene": "res://a b.tscn"}, "project": "/p/game"})
    assert set(received) == {EVENTS_URI, *uris, *(f"{uri}?project=game" for uri in uris)}
