"""Routing of changes to listeners, and the subscriptions at the backends."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contract import MODERN, ClientProfile, ListChange, ResourceInterest
from gateway.errors import ForeignError
from gateway.protocol.subscriptions import BACKLOG, Subscriptions
from tests.gateway.fakes import ALICE, FakeBackend, until

CLIENT = (ALICE, ClientProfile(MODERN, {}))


def map_all(namespace: str, change: ListChange) -> tuple[str, dict[str, str]]:
    return change[0], {"ns": namespace}


async def test_each_listener_gets_its_own_notification_of_a_change() -> None:
    subscriptions = Subscriptions({}.get)
    all_of_it = subscriptions.attach(map_all)
    prompts = subscriptions.attach(lambda ns, change: ("p", {}) if change[0] == "prompts" else None)
    subscriptions.publish("a", ListChange("tools"))
    subscriptions.publish("a", ListChange("prompts"))
    assert await all_of_it.next() == ("tools", {"ns": "a"})
    assert await all_of_it.next() == ("prompts", {"ns": "a"})
    assert await prompts.next() == ("p", {})


async def test_detached_listener_gets_nothing() -> None:
    subscriptions = Subscriptions({}.get)
    listener = subscriptions.attach(map_all)
    subscriptions.detach(listener)
    subscriptions.publish("a", ListChange("tools"))
    listener.end()
    assert await listener.next() is None


async def test_listener_that_is_not_read_is_bounded_and_ended() -> None:
    subscriptions = Subscriptions({}.get)
    listener = subscriptions.attach(map_all)
    for _ in range(BACKLOG * 4):
        subscriptions.publish("a", ListChange("tools"))
    count = 0
    while await listener.next() is not None:
        count += 1
    assert count < BACKLOG


async def test_close_ends_every_listener() -> None:
    subscriptions = Subscriptions({}.get)
    listeners = [subscriptions.attach(map_all) for _ in range(3)]
    subscriptions.close()
    assert [await listener.next() for listener in listeners] == [None] * 3


async def test_backend_gets_the_union_of_interests_only_when_it_changes() -> None:
    a, b = FakeBackend("a"), FakeBackend("b")
    subscriptions = Subscriptions({"a": a, "b": b}.get)
    await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x"), ("b", "y")}))
    await subscriptions.set_interest("two", *CLIENT, frozenset({("a", "x")}))
    await subscriptions.set_interest("two", *CLIENT, frozenset({("a", "z")}))
    assert (a.subscriptions, b.subscriptions) == ([{"x"}, {"x"}, {"x", "z"}], [{"y"}])
    await subscriptions.set_interest("one", *CLIENT, frozenset())
    assert (a.subscriptions[-1], b.subscriptions[-1]) == ({"z"}, frozenset())
    await subscriptions.set_interest("two", *CLIENT, frozenset())
    assert a.subscriptions[-1] == frozenset()
    assert (subscriptions._interests, subscriptions._synced) == ({}, {})


async def test_removed_backend_gets_no_subscriptions() -> None:
    a, b = FakeBackend("a"), FakeBackend("b")
    backends = {"a": a, "b": b}
    subscriptions = Subscriptions(backends.get)
    await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x")}))
    del backends["a"]
    await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "z"), ("b", "y")}))
    assert (a.subscriptions, b.subscriptions) == ([{"x"}], [{"y"}])


class SlowBackend(FakeBackend):
    """Blocks each change of its subscriptions until the gate is open."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.gate = asyncio.Event()

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(interests)
        await self.gate.wait()


async def test_concurrent_interests_are_all_subscribed() -> None:
    slow, quick = SlowBackend("a"), FakeBackend("b")
    subscriptions = Subscriptions({"a": slow, "b": quick}.get)
    slow.gate.set()
    await subscriptions.set_interest("before", *CLIENT, frozenset({("a", "w")}))
    await subscriptions.set_interest("before", *CLIENT, frozenset({("a", "w"), ("b", "w")}))
    slow.gate.clear()
    first = asyncio.create_task(subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x"), ("b", "y")})))
    await until(lambda: len(slow.subscriptions) == 2)
    await subscriptions.set_interest("two", *CLIENT, frozenset({("b", "y"), ("b", "z")}))
    slow.gate.set()
    await first
    assert quick.subscriptions[-1] == {"w", "y", "z"}


async def test_replacement_backend_gets_the_current_interests() -> None:
    old, new = FakeBackend("a"), FakeBackend("a")
    backends = {"a": old}
    subscriptions = Subscriptions(backends.get)
    await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x")}))
    backends["a"] = new
    subscriptions.publish("a", ListChange("resources"))
    await subscriptions.set_interest("two", *CLIENT, frozenset({("a", "x")}))
    assert new.subscriptions == [{"x"}]


class RefusingBackend(FakeBackend):
    """Refuses a subscription to the URI `bad`, as a server may."""

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(interests)
        if any("bad" in each.uris for each in interests):
            raise ForeignError(-32002, "There is no such resource.")


async def test_refused_interest_is_restored_and_does_not_affect_others() -> None:
    refusing, other = RefusingBackend("a"), FakeBackend("b")
    subscriptions = Subscriptions({"a": refusing, "b": other}.get)
    await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x")}))
    with pytest.raises(ForeignError):
        await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "x"), ("a", "bad")}))
    with pytest.raises(ForeignError):
        await subscriptions.set_interest("two", *CLIENT, frozenset({("a", "bad"), ("b", "y")}))
    await subscriptions.set_interest("three", *CLIENT, frozenset({("a", "z")}))
    await until(lambda: refusing.subscriptions[-1] == {"x", "z"})
    assert list(subscriptions._interests) == ["one", "three"]
    await subscriptions.set_interest("one", *CLIENT, frozenset())
    assert refusing.subscriptions[-1] == {"z"}
    assert other.subscriptions == []


async def test_refusal_of_one_backend_does_not_affect_another() -> None:
    refusing, other = RefusingBackend("a"), FakeBackend("b")
    subscriptions = Subscriptions({"a": refusing, "b": other}.get)
    with pytest.raises(ForeignError):
        await subscriptions.set_interest("one", *CLIENT, frozenset({("a", "bad")}))
    await subscriptions.set_interest("two", *CLIENT, frozenset({("b", "y")}))
    assert other.subscriptions == [{"y"}]
