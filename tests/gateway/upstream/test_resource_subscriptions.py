"""A refused resource subscription fails for its own client only."""

import asyncio
from collections.abc import Hashable

import pytest

from gateway.contract import MODERN, Caller, ClientProfile, ListChange, ResourceInterest
from gateway.errors import ForeignError
from gateway.upstream.lists import ChangeListener
from gateway.upstream.resource_subscriptions import ResourceSubscriptions
from tests.gateway.fakes import ALICE, BOB, until

CLIENT = ClientProfile(MODERN, {})


class FakeTransport:
    """Refuses every URI that contains "bad"; records the requests and the open streams."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, frozenset[str]]] = []
        self.streams: dict[str, list[tuple[frozenset[str], ChangeListener]]] = {}

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        self.requests.append((caller.subject, uris))
        if any("bad" in uri for uri in uris):
            raise ForeignError(-32602, f"{caller.subject} may not watch that")
        streams_of_caller = self.streams.setdefault(caller.subject, [])
        streams_of_caller.append((uris, listener))
        listener.on_ready()
        try:
            await asyncio.Event().wait()
        finally:
            streams_of_caller.remove((uris, listener))

    def subscribed(self, caller: Caller) -> list[frozenset[str]]:
        return [uris for uris, _ in self.streams.get(caller.subject, ())]


def _ignore(change: ListChange, caller: Caller) -> None:
    """The tests report no changes."""


def interest(caller: Caller, *uris: str) -> ResourceInterest:
    return ResourceInterest(caller, CLIENT, frozenset(uris))


async def test_refused_subscription_of_one_client_does_not_fail_that_of_another() -> None:
    transport = FakeTransport()
    subscriptions = ResourceSubscriptions("far", transport, _ignore)
    with pytest.raises(ForeignError, match="alice may not"):
        await subscriptions.set_interests([interest(ALICE, "bad")])
    for uri in ("good", "fine"):
        await subscriptions.set_interests([interest(ALICE, "bad"), interest(BOB, uri)])
        assert transport.subscribed(BOB) == [{uri}]
    assert transport.requests.count(("alice", frozenset({"bad"}))) == 1
    await subscriptions.close()


async def test_repeated_request_for_a_refused_subscription_is_refused_again() -> None:
    transport = FakeTransport()
    subscriptions = ResourceSubscriptions("far", transport, _ignore)
    for _ in range(2):
        with pytest.raises(ForeignError, match="bob may not"):
            await subscriptions.set_interests([interest(ALICE, "good"), interest(BOB, "bad")])
        await subscriptions.set_interests([interest(ALICE, "good")])
    assert transport.subscribed(ALICE) == [{"good"}]
    await subscriptions.close()


async def test_refused_subscription_leaves_existing_ones_unchanged() -> None:
    transport = FakeTransport()
    subscriptions = ResourceSubscriptions("far", transport, _ignore)
    await subscriptions.set_interests([interest(ALICE, "good")])
    with pytest.raises(ForeignError, match="alice may not"):
        await subscriptions.set_interests([interest(ALICE, "good", "bad")])
    assert transport.subscribed(ALICE) == [{"good"}]
    await subscriptions.set_interests([interest(ALICE, "good")])
    assert transport.subscribed(ALICE) == [{"good"}]
    await subscriptions.set_interests([interest(ALICE, "good", "fine")])
    await until(lambda: transport.subscribed(ALICE) == [{"good", "fine"}])
    await subscriptions.set_interests([])
    assert transport.subscribed(ALICE) == []
