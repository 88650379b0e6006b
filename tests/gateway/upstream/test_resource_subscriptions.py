"""Whose subscriptions fail when a server refuses one, and whose do not."""

import asyncio
from collections.abc import Hashable

import pytest

from gateway.contract import MODERN, Caller, ClientProfile, ListChange, ResourceInterest
from gateway.errors import ForeignError
from gateway.upstream.lists import ChangeListener
from gateway.upstream.resource_subscriptions import ResourceSubscriptions
from tests.gateway.fakes import ALICE, BOB, until

CLIENT = ClientProfile(MODERN, {})


class Server:
    """Refuses whatever names "bad", and notes what it was asked for and what it tells of now."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, frozenset[str]]] = []
        self.hearings: dict[str, list[tuple[frozenset[str], ChangeListener]]] = {}

    def party(self, caller: Caller, client: ClientProfile) -> Hashable:
        return caller.principal

    async def hear(self, caller: Caller, client: ClientProfile, uris: frozenset[str], hearing: ChangeListener) -> None:
        self.asked.append((caller.subject, uris))
        if any("bad" in uri for uri in uris):
            raise ForeignError(-32602, f"{caller.subject} may not watch that")
        heard = self.hearings.setdefault(caller.subject, [])
        heard.append((uris, hearing))
        hearing.ready()
        try:
            await asyncio.Event().wait()
        finally:
            heard.remove((uris, hearing))

    def held(self, caller: Caller) -> list[frozenset[str]]:
        return [uris for uris, _ in self.hearings.get(caller.subject, ())]


def _nobody(change: ListChange, caller: Caller) -> None:
    """Nobody hears."""


def want(caller: Caller, *uris: str) -> ResourceInterest:
    return ResourceInterest(caller, CLIENT, frozenset(uris))


async def test_what_one_is_refused_fails_nobody_elses_subscription() -> None:
    server = Server()
    watches = ResourceSubscriptions("far", server, _nobody)
    with pytest.raises(ForeignError, match="alice may not"):
        await watches.want([want(ALICE, "bad")])
    for uri in ("good", "fine"):
        await watches.want([want(ALICE, "bad"), want(BOB, uri)])
        assert server.held(BOB) == [{uri}]
    assert server.asked.count(("alice", frozenset({"bad"}))) == 1
    await watches.close()


async def test_whoever_asks_again_for_what_was_refused_is_told_again() -> None:
    server = Server()
    watches = ResourceSubscriptions("far", server, _nobody)
    for _ in range(2):
        with pytest.raises(ForeignError, match="bob may not"):
            await watches.want([want(ALICE, "good"), want(BOB, "bad")])
        await watches.want([want(ALICE, "good")])
    assert server.held(ALICE) == [{"good"}]
    await watches.close()


async def test_a_refused_subscription_takes_none_from_those_that_stand() -> None:
    server = Server()
    watches = ResourceSubscriptions("far", server, _nobody)
    await watches.want([want(ALICE, "good")])
    with pytest.raises(ForeignError, match="alice may not"):
        await watches.want([want(ALICE, "good", "bad")])
    assert server.held(ALICE) == [{"good"}]
    await watches.want([want(ALICE, "good")])
    assert server.held(ALICE) == [{"good"}]
    await watches.want([want(ALICE, "good", "fine")])
    await until(lambda: server.held(ALICE) == [{"good", "fine"}])
    await watches.want([])
    assert server.held(ALICE) == []
