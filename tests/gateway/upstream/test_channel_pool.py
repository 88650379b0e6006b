"""Eviction of channels when the pool is full."""

from typing import Any, cast

import pytest

from gateway.contract import Json
from gateway.errors import Fault
from gateway.upstream.channel_pool import MAX_PER_OWNER, ChannelPool
from gateway.upstream.concurrency import StartLimiter
from gateway.upstream.jsonrpc_channel import JsonRpcChannel
from gateway.upstream.remote import Era


class FakeChannel:
    """A channel that starts at once, with the members that `ChannelPool` uses."""

    def __init__(self) -> None:
        self.is_closed = self.is_busy = self.has_answered = False

    async def start(self, capabilities: Json, known_era: Era | None) -> None: ...

    async def stop(self) -> None:
        self.is_closed = True


def make_pool(limit: int) -> ChannelPool:
    return ChannelPool("far", lambda: cast("JsonRpcChannel", FakeChannel()), limit, StartLimiter(limit))


def owners(pool: ChannelPool) -> list[str]:
    return sorted(key[0] for key, _ in pool.alive() if key)


async def open_channel(pool: ChannelPool, *key: Any) -> Any:
    return await pool.get(key, {}, "handshake")


async def test_owner_above_its_limit_evicts_only_its_own_channels() -> None:
    pool = make_pool(32)
    other = await open_channel(pool, "beta", "form")
    for number in range(40):
        await open_channel(pool, "acme", f"kind-{number}")
    assert owners(pool) == ["acme"] * MAX_PER_OWNER + ["beta"]
    assert not other.is_closed
    await pool.close()


async def test_owner_with_only_busy_channels_gets_no_more_while_others_do() -> None:
    pool = make_pool(32)
    for number in range(MAX_PER_OWNER):
        (await open_channel(pool, "acme", f"kind-{number}")).is_busy = True
    with pytest.raises(Fault, match="reached its limit of sessions"):
        await open_channel(pool, "acme", "one more")
    await open_channel(pool, "beta", "form")
    await pool.close()


async def test_full_pool_evicts_the_owners_idle_channel_before_those_of_others() -> None:
    pool = make_pool(3)
    other_oldest = await open_channel(pool, "beta", "form")
    first = await open_channel(pool, "acme", "form")
    await open_channel(pool, "acme", "url")
    await open_channel(pool, "acme", "roots")
    assert first.is_closed
    assert not other_oldest.is_closed
    await open_channel(pool, "gamma", "form")  # has no channel of its own: the least recently used one is evicted
    assert other_oldest.is_closed
    await pool.close()


async def test_listing_channel_is_never_evicted() -> None:
    pool = make_pool(1)
    listing = await open_channel(pool)
    with pytest.raises(Fault, match="reached its limit of sessions"):
        await open_channel(pool, "acme", "form")
    assert not listing.is_closed
    await pool.close()
