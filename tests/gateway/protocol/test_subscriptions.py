"""Who hears of which change, and what backends are asked to watch."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contract import MODERN, ClientProfile, ListChange, ResourceInterest
from gateway.errors import ForeignError
from gateway.protocol.subscriptions import BACKLOG, Subscriptions
from tests.gateway.fakes import ALICE, FakeBackend, until

HERE = (ALICE, ClientProfile(MODERN, {}))


def everything(namespace: str, change: ListChange) -> tuple[str, dict[str, str]]:
    return change[0], {"ns": namespace}


async def test_each_ear_hears_what_the_change_means_to_it() -> None:
    hub = Subscriptions({}.get)
    all_of_it = hub.attach(everything)
    prompts = hub.attach(lambda ns, change: ("p", {}) if change[0] == "prompts" else None)
    hub.changed("a", ListChange("tools"))
    hub.changed("a", ListChange("prompts"))
    assert await all_of_it.next() == ("tools", {"ns": "a"})
    assert await all_of_it.next() == ("prompts", {"ns": "a"})
    assert await prompts.next() == ("p", {})


async def test_a_detached_ear_hears_nothing() -> None:
    hub = Subscriptions({}.get)
    ear = hub.attach(everything)
    hub.detach(ear)
    hub.changed("a", ListChange("tools"))
    ear.end()
    assert await ear.next() is None


async def test_an_ear_that_is_not_emptied_is_ended_and_what_it_holds_is_bounded() -> None:
    hub = Subscriptions({}.get)
    ear = hub.attach(everything)
    for _ in range(BACKLOG * 4):
        hub.changed("a", ListChange("tools"))
    heard = 0
    while await ear.next() is not None:
        heard += 1
    assert heard < BACKLOG


async def test_closing_ends_every_ear() -> None:
    hub = Subscriptions({}.get)
    ears = [hub.attach(everything) for _ in range(3)]
    hub.close()
    assert [await ear.next() for ear in ears] == [None] * 3


async def test_backends_watch_what_is_wanted_in_all_and_are_told_only_of_changes() -> None:
    a, b = FakeBackend("a"), FakeBackend("b")
    hub = Subscriptions({"a": a, "b": b}.get)
    await hub.want("one", *HERE, frozenset({("a", "x"), ("b", "y")}))
    await hub.want("two", *HERE, frozenset({("a", "x")}))
    await hub.want("two", *HERE, frozenset({("a", "z")}))
    assert (a.watches, b.watches) == ([{"x"}, {"x"}, {"x", "z"}], [{"y"}])
    await hub.want("one", *HERE, frozenset())
    assert (a.watches[-1], b.watches[-1]) == ({"z"}, frozenset())
    await hub.want("two", *HERE, frozenset())
    assert a.watches[-1] == frozenset()
    assert (hub._wants, hub._watching) == ({}, {})


async def test_a_backend_that_is_gone_is_asked_nothing() -> None:
    a, b = FakeBackend("a"), FakeBackend("b")
    served = {"a": a, "b": b}
    hub = Subscriptions(served.get)
    await hub.want("one", *HERE, frozenset({("a", "x")}))
    del served["a"]
    await hub.want("one", *HERE, frozenset({("a", "z"), ("b", "y")}))
    assert (a.watches, b.watches) == ([{"x"}], [{"y"}])


class Slow(FakeBackend):
    """Takes a moment to begin to watch."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.gate = asyncio.Event()

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(wants)
        await self.gate.wait()


async def test_two_who_want_at_once_both_get_what_they_want() -> None:
    slow, quick = Slow("a"), FakeBackend("b")
    hub = Subscriptions({"a": slow, "b": quick}.get)
    slow.gate.set()
    await hub.want("before", *HERE, frozenset({("a", "w")}))
    await hub.want("before", *HERE, frozenset({("a", "w"), ("b", "w")}))
    slow.gate.clear()
    first = asyncio.create_task(hub.want("one", *HERE, frozenset({("a", "x"), ("b", "y")})))
    await until(lambda: len(slow.watches) == 2)
    await hub.want("two", *HERE, frozenset({("b", "y"), ("b", "z")}))
    slow.gate.set()
    await first
    assert quick.watches[-1] == {"w", "y", "z"}


async def test_a_backend_that_replaced_another_watches_what_was_wanted_of_it() -> None:
    old, new = FakeBackend("a"), FakeBackend("a")
    serving = {"a": old}
    hub = Subscriptions(serving.get)
    await hub.want("one", *HERE, frozenset({("a", "x")}))
    serving["a"] = new
    hub.changed("a", ListChange("resources"))
    await hub.want("two", *HERE, frozenset({("a", "x")}))
    assert new.watches == [{"x"}]


class Picky(FakeBackend):
    """Refuses whoever wants something bad, as a server may."""

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        await super().set_subscriptions(wants)
        if any("bad" in each.uris for each in wants):
            raise ForeignError(-32002, "There is no such resource.")


async def test_what_a_backend_refuses_one_is_taken_back_and_fails_nobody_else() -> None:
    picky, other = Picky("a"), FakeBackend("b")
    hub = Subscriptions({"a": picky, "b": other}.get)
    await hub.want("one", *HERE, frozenset({("a", "x")}))
    with pytest.raises(ForeignError):
        await hub.want("one", *HERE, frozenset({("a", "x"), ("a", "bad")}))
    with pytest.raises(ForeignError):
        await hub.want("two", *HERE, frozenset({("a", "bad"), ("b", "y")}))
    await hub.want("three", *HERE, frozenset({("a", "z")}))
    await until(lambda: picky.watches[-1] == {"x", "z"})
    assert list(hub._wants) == ["one", "three"]
    await hub.want("one", *HERE, frozenset())
    assert picky.watches[-1] == {"z"}
    assert other.watches == []


async def test_one_backends_refusal_is_no_others() -> None:
    picky, other = Picky("a"), FakeBackend("b")
    hub = Subscriptions({"a": picky, "b": other}.get)
    with pytest.raises(ForeignError):
        await hub.want("one", *HERE, frozenset({("a", "bad")}))
    await hub.want("two", *HERE, frozenset({("b", "y")}))
    assert other.watches == [{"y"}]
