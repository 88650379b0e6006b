"""Tests of subscriptions in both protocol eras: subscribers are notified of matching changes only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.types import ResourceUpdatedNotification

from backends.knowledge.notifications import MAX_IDS, ChangeNotifier, notification_payloads
from backends.knowledge.unit_of_work import Change, RecordedTransaction

MODERN = "2026-07-28"
ENTRIES, TRIPLES = "knowledge://entries", "knowledge://graph/triples"
TRANSACTIONS = "knowledge://history/transactions"


class NotificationRecorder:
    """Records the notifications of a client in order.

    A change of the marker triple shows that all earlier notifications have arrived.
    """

    def __init__(self, memory: Any, probe: str, marker: str) -> None:
        self.received: list[Any] = []
        self.probe, self.marker = (f"{TRIPLES}/{id_}" for id_ in (probe, marker))
        self._memory = memory
        self._arrived = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.received.append(message.params)
            self._arrived.set()

    def of(self, uri: str) -> list[Any]:
        return [params for params in self.received if params.uri == uri]

    async def flush(self) -> None:
        """Wait until all pending notifications have arrived."""
        before = len(self.of(self.marker))
        await self._change(self.marker)
        while len(self.of(self.marker)) == before:
            self._arrived.clear()
            await asyncio.wait_for(self._arrived.wait(), 10)

    async def wait_for_stream(self) -> None:
        """Make changes until one is notified: a handshake-era client opens its stream asynchronously."""
        while not self.received:
            await self._change(self.probe)

    async def _change(self, uri: str) -> None:
        await self._memory("update_triple", id=uri.rpartition("/")[2], source="changed")


@asynccontextmanager
async def subscribed_client(memory: Any, era: str, *uris: str) -> AsyncIterator[tuple[Any, NotificationRecorder]]:
    """Yield a client of the era that is subscribed to the resources and receives notifications."""
    created = [(await memory("relate", subject=name, predicate="is", object="here"))["id"] for name in ("one", "two")]
    recorder = NotificationRecorder(memory, *created)
    async with memory.gateway.client(era, message_handler=recorder) as client:
        if era == MODERN:
            async with client.listen(resource_subscriptions=[*uris, recorder.probe, recorder.marker]):
                yield client, recorder
            return
        for uri in (*uris, recorder.probe, recorder.marker):
            await client.subscribe_resource(uri)
        await recorder.wait_for_stream()
        yield client, recorder


async def test_us_002_004_subscriber_is_notified_of_a_committed_change(memory: Any, era: str) -> None:
    async with subscribed_client(memory, era, ENTRIES) as (_, recorder):
        await memory("store", topic="t", content="c")
        await recorder.flush()
        assert len(recorder.of(ENTRIES)) == 1


async def test_us_002_004_notification_describes_the_change(memory: Any, era: str) -> None:
    async with subscribed_client(memory, era, ENTRIES) as (_, recorder):
        created = await memory("store", topic="t", content="c")
        (transaction, *_) = (await memory("history"))["items"]
        await recorder.flush()
        meta = recorder.of(ENTRIES)[0].meta
        assert meta["resource_uri"] == ENTRIES
        assert meta["tx_id"] == transaction["id"]
        assert meta["change_type"] == "upsert"
        assert meta["changed_ids"] == [created["id"]]
        await memory("delete", id=created["id"])
        await recorder.flush()
        meta = recorder.of(ENTRIES)[1].meta
        assert (meta["change_type"], meta["changed_ids"]) == ("delete", [created["id"]])


async def test_us_002_004_raw_notification_has_the_change_at_top_level(memory: Any) -> None:
    subscription = {"notifications": {"resourceSubscriptions": [ENTRIES]}}
    async with memory.stream("subscriptions/listen", subscription) as messages:
        acknowledged = await anext(messages)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        created = await memory("store", topic="t", content="c")
        params = (await anext(messages))["params"]
    assert (params["uri"], params["resource_uri"]) == (ENTRIES, ENTRIES)
    assert (params["change_type"], params["changed_ids"]) == ("upsert", [created["id"]])
    assert params["tx_id"] == params["_meta"]["tx_id"]


async def test_us_002_004_no_notification_after_acknowledged_unsubscribe(memory: Any) -> None:
    async with subscribed_client(memory, "legacy", ENTRIES) as (client, recorder):
        await memory("store", topic="t", content="before")
        await recorder.flush()
        assert len(recorder.of(ENTRIES)) == 1
        await client.unsubscribe_resource(ENTRIES)
        await memory("store", topic="t", content="after")
        await recorder.flush()
        assert len(recorder.of(ENTRIES)) == 1


async def test_us_002_004_no_notification_after_the_listen_stream_closes(memory: Any) -> None:
    async with subscribed_client(memory, MODERN) as (client, recorder):
        async with client.listen(resource_subscriptions=[ENTRIES]):
            await memory("store", topic="t", content="before")
            await recorder.flush()
        received = len(recorder.of(ENTRIES))
        async with client.listen(resource_subscriptions=["knowledge://graph/entities"]):
            # The new stream is acknowledged, so the old one has ended.
            await memory("store", topic="t", content="after")
            await recorder.flush()
        assert len(recorder.of(ENTRIES)) == received


async def test_single_entry_can_be_subscribed(memory: Any, era: str) -> None:
    created = await memory("store", topic="t", content="c")
    uri = f"{ENTRIES}/{created['id']}"
    async with subscribed_client(memory, era, uri) as (_, recorder):
        await memory("store", topic="t", content="another")
        await memory("update", id=created["id"], content="d")
        await recorder.flush()
        assert len(recorder.of(uri)) == 1
        assert recorder.of(ENTRIES) == []


async def test_undo_notifies_subscribers(memory: Any, era: str) -> None:
    await memory("store", topic="t", content="c")
    async with subscribed_client(memory, era, ENTRIES, TRANSACTIONS) as (_, recorder):
        await recorder.flush()
        before = len(recorder.of(TRANSACTIONS))
        await memory("store", topic="t", content="d")
        await memory("undo")
        await recorder.flush()
        assert len(recorder.of(ENTRIES)) == 2
        # The transaction of the marker's own change is notified after the marker, so it may not have arrived yet.
        assert len(recorder.of(TRANSACTIONS)) >= before + 2


async def test_changes_of_another_tenant_are_not_notified(memory: Any, era: str) -> None:
    other = await memory.in_other_tenant()
    async with subscribed_client(memory, era, ENTRIES) as (_, recorder):
        await other("store", topic="t", content="of the other")
        await recorder.flush()
        assert recorder.of(ENTRIES) == []


# ---- payloads -----------------------------------------------------------------------------------------------------


def recorded(number: int, *changes: Change) -> RecordedTransaction:
    return RecordedTransaction(f"tx-{number}", "UPDATE", changes)


def test_one_payload_per_resource_and_change_type_with_its_newest_transaction() -> None:
    payloads = list(
        notification_payloads(
            [
                recorded(1, Change("entry", "e1", None, {}), Change("entry", "e2", {}, None)),
                recorded(2, Change("entry", "e3", {}, {}), Change("triple", "t1", {}, None)),
            ]
        )
    )
    lists = [each for each in payloads if each["resource_uri"] in (ENTRIES, TRIPLES, TRANSACTIONS)]
    assert lists == [
        {"resource_uri": ENTRIES, "tx_id": "tx-2", "change_type": "upsert", "changed_ids": ["e1", "e3"]},
        {"resource_uri": ENTRIES, "tx_id": "tx-1", "change_type": "delete", "changed_ids": ["e2"]},
        {"resource_uri": TRIPLES, "tx_id": "tx-2", "change_type": "delete", "changed_ids": ["t1"]},
        {"resource_uri": TRANSACTIONS, "tx_id": "tx-2", "change_type": "upsert", "changed_ids": ["tx-1", "tx-2"]},
    ]


def test_changed_ids_are_bounded() -> None:
    changes = [Change("entry", f"e{n}", None, {}) for n in range(3 * MAX_IDS)]
    assert all(len(each["changed_ids"]) <= MAX_IDS for each in notification_payloads([recorded(1, *changes)]))


class Session:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def send_notification(self, notification: Any, related_request_id: Any) -> None:
        assert related_request_id == 7
        self.sent.append(notification.model_dump(by_alias=True, mode="json", exclude_none=True))


async def test_only_subscribed_resources_are_notified_at_top_level_and_in_meta() -> None:
    session, notifier = Session(), ChangeNotifier()
    notifier.subscribe("acme", ENTRIES)
    notifier.subscribe("acme", TRIPLES)
    notifier.unsubscribe("acme", TRIPLES)
    searched = f"{ENTRIES}?topic=x"
    notifier.subscribe("acme", searched)
    notifier.subscribe("beta", f"{ENTRIES}?topic=y")
    changes = (Change("entry", "e1", {}, None), Change("triple", "t1", None, {}))
    await notifier.notify("acme", session, 7, [recorded(1, *changes)])  # pyright: ignore
    facts = {"resource_uri": ENTRIES, "tx_id": "tx-1", "change_type": "delete", "changed_ids": ["e1"]}
    method = "notifications/resources/updated"
    assert session.sent == [
        {"method": method, "params": {"uri": uri, **facts, "_meta": facts}} for uri in (ENTRIES, searched)
    ]


async def test_subscriptions_of_another_tenant_add_no_work() -> None:
    """Without a subscription of this tenant, the recorded transactions are not read at all."""

    class Unread(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("the transactions were read")

        def __bool__(self) -> bool:
            raise AssertionError("the transactions were read")

    notifier = ChangeNotifier()
    notifier.subscribe("beta", ENTRIES)
    notifier.subscribe("acme", ENTRIES)
    notifier.unsubscribe("acme", ENTRIES)
    notifier.unsubscribe("acme", ENTRIES)
    await notifier.notify("acme", Session(), 7, Unread())  # pyright: ignore
