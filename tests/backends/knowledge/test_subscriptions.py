"""Subscriptions in both eras: who watches hears of changes, and of nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.types import ResourceUpdatedNotification

from backends.knowledge.notifications import MAX_IDS, Announcer, news_of
from backends.knowledge.unit_of_work import Change, Written

MODERN = "2026-07-28"
ENTRIES, TRIPLES = "knowledge://entries", "knowledge://graph/triples"
TRANSACTIONS = "knowledge://history/transactions"


class Ears:
    """What a client hears, in order, and a triple whose change shows that all changes before it were heard of."""

    def __init__(self, memory: Any, probe: str, marker: str) -> None:
        self.heard: list[Any] = []
        self.probe, self.marker = (f"{TRIPLES}/{id_}" for id_ in (probe, marker))
        self._memory = memory
        self._news = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.heard.append(message.params)
            self._news.set()

    def of(self, uri: str) -> list[Any]:
        return [params for params in self.heard if params.uri == uri]

    async def catch_up(self) -> None:
        """Once this returns, everything that was to be heard has been."""
        before = len(self.of(self.marker))
        await self._change(self.marker)
        while len(self.of(self.marker)) == before:
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 10)

    async def wake_up(self) -> None:
        """A client of the handshake era opens its stream in its own time: changes are made until one is heard of."""
        while not self.heard:
            await self._change(self.probe)

    async def _change(self, uri: str) -> None:
        await self._memory("update_triple", id=uri.rpartition("/")[2], source="changed")


@asynccontextmanager
async def listening(memory: Any, era: str, *uris: str) -> AsyncIterator[tuple[Any, Ears]]:
    """A client of that era that is subscribed to the resources, and known to hear of changes."""
    made = [(await memory("relate", subject=name, predicate="is", object="here"))["id"] for name in ("one", "two")]
    ears = Ears(memory, *made)
    async with memory.gateway.client(era, message_handler=ears) as client:
        if era == MODERN:
            async with client.listen(resource_subscriptions=[*uris, ears.probe, ears.marker]):
                yield client, ears
            return
        for uri in (*uris, ears.probe, ears.marker):
            await client.subscribe_resource(uri)
        await ears.wake_up()
        yield client, ears


async def test_us_002_004_a_subscriber_hears_of_a_committed_change(memory: Any, era: str) -> None:
    async with listening(memory, era, ENTRIES) as (_, ears):
        await memory("store", topic="t", content="c")
        await ears.catch_up()
        assert len(ears.of(ENTRIES)) == 1


async def test_us_002_004_a_notification_says_what_changed(memory: Any, era: str) -> None:
    async with listening(memory, era, ENTRIES) as (_, ears):
        made = await memory("store", topic="t", content="c")
        (transaction, *_) = (await memory("history"))["items"]
        await ears.catch_up()
        told = ears.of(ENTRIES)[0].meta
        assert told["resource_uri"] == ENTRIES
        assert told["tx_id"] == transaction["id"]
        assert told["change_type"] == "upsert"
        assert told["changed_ids"] == [made["id"]]
        await memory("delete", id=made["id"])
        await ears.catch_up()
        told = ears.of(ENTRIES)[1].meta
        assert (told["change_type"], told["changed_ids"]) == ("delete", [made["id"]])


async def test_us_002_004_who_reads_the_wire_finds_it_at_the_top_level(memory: Any) -> None:
    asked = {"notifications": {"resourceSubscriptions": [ENTRIES]}}
    async with memory.stream("subscriptions/listen", asked) as messages:
        acknowledged = await anext(messages)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        made = await memory("store", topic="t", content="c")
        params = (await anext(messages))["params"]
    assert (params["uri"], params["resource_uri"]) == (ENTRIES, ENTRIES)
    assert (params["change_type"], params["changed_ids"]) == ("upsert", [made["id"]])
    assert params["tx_id"] == params["_meta"]["tx_id"]


async def test_us_002_004_nothing_arrives_after_an_acknowledged_unsubscription(memory: Any) -> None:
    async with listening(memory, "legacy", ENTRIES) as (client, ears):
        await memory("store", topic="t", content="before")
        await ears.catch_up()
        assert len(ears.of(ENTRIES)) == 1
        await client.unsubscribe_resource(ENTRIES)
        await memory("store", topic="t", content="after")
        await ears.catch_up()
        assert len(ears.of(ENTRIES)) == 1


async def test_us_002_004_nothing_arrives_after_a_listener_has_left(memory: Any) -> None:
    async with listening(memory, MODERN) as (client, ears):
        async with client.listen(resource_subscriptions=[ENTRIES]):
            await memory("store", topic="t", content="before")
            await ears.catch_up()
        heard = len(ears.of(ENTRIES))
        async with client.listen(resource_subscriptions=["knowledge://graph/entities"]):
            # The new stream is acknowledged, so the old one is over.
            await memory("store", topic="t", content="after")
            await ears.catch_up()
        assert len(ears.of(ENTRIES)) == heard


async def test_a_single_entry_can_be_watched(memory: Any, era: str) -> None:
    made = await memory("store", topic="t", content="c")
    uri = f"{ENTRIES}/{made['id']}"
    async with listening(memory, era, uri) as (_, ears):
        await memory("store", topic="t", content="another")
        await memory("update", id=made["id"], content="d")
        await ears.catch_up()
        assert len(ears.of(uri)) == 1
        assert ears.of(ENTRIES) == []


async def test_an_undo_is_heard_of_like_any_change(memory: Any, era: str) -> None:
    await memory("store", topic="t", content="c")
    async with listening(memory, era, ENTRIES, TRANSACTIONS) as (_, ears):
        await ears.catch_up()
        before = len(ears.of(TRANSACTIONS))
        await memory("store", topic="t", content="d")
        await memory("undo")
        await ears.catch_up()
        assert len(ears.of(ENTRIES)) == 2
        # The transaction of the marker's own change is told after the marker, so it may not have come yet.
        assert len(ears.of(TRANSACTIONS)) >= before + 2


async def test_another_tenants_changes_are_not_heard_of(memory: Any, era: str) -> None:
    other = await memory.elsewhere()
    async with listening(memory, era, ENTRIES) as (_, ears):
        await other("store", topic="t", content="of the other")
        await ears.catch_up()
        assert ears.of(ENTRIES) == []


# ---- what leaves the backend --------------------------------------------------------------------------------------


def written(number: int, *changes: Change) -> Written:
    return Written(f"tx-{number}", "UPDATE", changes)


def test_each_resource_and_type_of_change_is_told_once_with_its_newest_transaction() -> None:
    news = list(
        news_of(
            [
                written(1, Change("entry", "e1", None, {}), Change("entry", "e2", {}, None)),
                written(2, Change("entry", "e3", {}, {}), Change("triple", "t1", {}, None)),
            ]
        )
    )
    lists = [each for each in news if each["resource_uri"] in (ENTRIES, TRIPLES, TRANSACTIONS)]
    assert lists == [
        {"resource_uri": ENTRIES, "tx_id": "tx-2", "change_type": "upsert", "changed_ids": ["e1", "e3"]},
        {"resource_uri": ENTRIES, "tx_id": "tx-1", "change_type": "delete", "changed_ids": ["e2"]},
        {"resource_uri": TRIPLES, "tx_id": "tx-2", "change_type": "delete", "changed_ids": ["t1"]},
        {"resource_uri": TRANSACTIONS, "tx_id": "tx-2", "change_type": "upsert", "changed_ids": ["tx-1", "tx-2"]},
    ]


def test_the_list_of_changed_ids_is_bounded() -> None:
    changes = [Change("entry", f"e{n}", None, {}) for n in range(3 * MAX_IDS)]
    assert all(len(each["changed_ids"]) <= MAX_IDS for each in news_of([written(1, *changes)]))


class Session:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send_notification(self, notification: Any, related_request_id: Any) -> None:
        assert related_request_id == 7
        self.sent.append(notification.model_dump(by_alias=True, mode="json", exclude_none=True))


async def test_only_watched_resources_are_told_of_at_the_top_level_and_in_meta() -> None:
    session, announcer = Session(), Announcer()
    announcer.watch("acme", ENTRIES)
    announcer.watch("acme", TRIPLES)
    announcer.unwatch("acme", TRIPLES)
    searched = f"{ENTRIES}?topic=x"
    announcer.watch("acme", searched)
    announcer.watch("beta", f"{ENTRIES}?topic=y")
    changes = (Change("entry", "e1", {}, None), Change("triple", "t1", None, {}))
    await announcer.tell("acme", session, 7, [written(1, *changes)])  # pyright: ignore
    facts = {"resource_uri": ENTRIES, "tx_id": "tx-1", "change_type": "delete", "changed_ids": ["e1"]}
    method = "notifications/resources/updated"
    assert session.sent == [
        {"method": method, "params": {"uri": uri, **facts, "_meta": facts}} for uri in (ENTRIES, searched)
    ]


async def test_what_another_tenant_watches_costs_nothing() -> None:
    """Nobody of this tenant watches: what was written is not even looked at, however much others watch."""

    class Unread(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("looked at")

        def __bool__(self) -> bool:
            raise AssertionError("looked at")

    announcer = Announcer()
    announcer.watch("beta", ENTRIES)
    announcer.watch("acme", ENTRIES)
    announcer.unwatch("acme", ENTRIES)
    announcer.unwatch("acme", ENTRIES)
    await announcer.tell("acme", Session(), 7, Unread())  # pyright: ignore
