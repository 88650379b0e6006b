"""What an editor tells unasked reaches those of its tenant who watch, in either era, and nobody else."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.types import ResourceUpdatedNotification

from backends.godot.events import EVENTS, touched
from tests.backends.godot.editors import Door, StandIn, stand_in

MODERN = "2026-07-28"
GAME = "/home/us/my game"


class Ears:
    """What a client hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self._news = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.heard.append((str(message.params.uri), message.params.meta["godot:event"]["event"]))
            self._news.set()

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not fact():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(gateway: Any, era: str, editor: StandIn, *uris: str) -> AsyncIterator[Ears]:
    """A client that is subscribed, and known to hear."""
    ears = Ears()
    async with gateway.client(era, message_handler=ears) as client:
        if era == MODERN:
            async with client.listen(resource_subscriptions=[EVENTS, *uris]):
                yield ears
            return
        for uri in (EVENTS, *uris):
            await client.subscribe_resource(uri)
        # A client of that era opens its stream in its own time.
        while not ears.heard:
            await editor.tell("knock", {})
            await asyncio.sleep(0.02)
        yield ears


async def test_who_watches_hears_what_an_editor_tells(studio: Any, era: str) -> None:
    scene = "godot://scene/levels/one.tscn"
    async with stand_in(Door(studio), GAME) as editor:
        async with watching(studio.gateway, era, editor, scene, "godot://scenes?project=my%20game") as ears:
            await editor.tell("scene_saved", {"scene": "res://levels/one.tscn"})
            await editor.tell("filesystem_changed", {})
            await editor.tell("last", {})
            await ears.until(lambda: (EVENTS, "last") in ears.heard)
        told = [each for each in ears.heard if each[1] != "knock"]
        assert told == [
            (EVENTS, "scene_saved"),
            (scene, "scene_saved"),
            (EVENTS, "filesystem_changed"),
            ("godot://scenes?project=my%20game", "filesystem_changed"),
            (EVENTS, "last"),
        ]


async def test_another_tenant_neither_hears_nor_reads_it(studio_with: Any, era: str) -> None:
    async with studio_with(settings={"tenants": {"default": {}, "acme": {}}}) as ours:
        theirs, door = await ours.of("acme"), Door(ours)
        async with stand_in(door, GAME) as editor, stand_in(door, GAME, "acme") as other:
            async with watching(theirs.gateway, era, other) as ears:
                await editor.tell("secret", {"scene": "res://secret.tscn"})
                while "secret" not in await read(ours):
                    pass
                await other.tell("own", {})
                await ears.until(lambda: (EVENTS, "own") in ears.heard)
            assert (EVENTS, "secret") not in ears.heard
            assert "secret" not in await read(theirs)


async def read(studio: Any) -> str:
    return (await studio.gateway.post("resources/read", {"uri": EVENTS})).text


async def test_only_so_many_are_kept_and_none_is_large(studio: Any) -> None:
    async with stand_in(Door(studio), GAME) as editor:
        await editor.tell("huge", {"x": "y" * 70_000})
        for number in range(120):
            await editor.tell(f"number-{number}.", {})
        while "number-119." not in await read(studio):
            pass
        kept = await read(studio)
        assert "huge" not in kept
        assert "number-19." not in kept
        assert "number-20." in kept


@pytest.mark.parametrize(
    ("event", "uris"),
    [
        ("node_added", set()),
        ("scene_saved", {"godot://scene/a%20b.tscn", "godot://scene/a%20b.tscn/tree"}),
        ("script_created", {f"godot://{each}" for each in ("scenes", "scripts", "assets", "resources")}),
    ],
)
def test_what_an_event_touches_is_told_with_and_without_the_projects_name(event: str, uris: set[str]) -> None:
    told = touched({"event": event, "data": {"scene": "res://a b.tscn"}, "project": "/p/game"})
    assert set(told) == {EVENTS, *uris, *(f"{uri}?project=game" for uri in uris)}
