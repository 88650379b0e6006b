"""Who makes room for whom when a server runs as often as it may."""

from typing import Any, cast

import pytest

from gateway.contract import Json
from gateway.errors import Fault
from gateway.upstream.channel_pool import EACH, ChannelPool, Whose
from gateway.upstream.concurrency import StartLimiter
from gateway.upstream.remote import Era


class Idle:
    """A pipe that starts at once; as much of one as `Pipes` asks for."""

    def __init__(self) -> None:
        self.dead = self.busy = self.useful = False

    async def start(self, capabilities: Json, known: Era | None) -> None: ...

    async def stop(self) -> None:
        self.dead = True


def pipes(most: int) -> ChannelPool:
    return ChannelPool("far", lambda: cast("Pipe", Idle()), most, StartLimiter(most))


def owners(of: ChannelPool) -> list[str]:
    return sorted(whose[0] for whose, _ in of.alive() if whose)


async def opened(of: ChannelPool, *whose: Any) -> Any:
    key: Whose = whose
    return await of.get(key, {}, "handshake")


async def test_an_owner_who_opens_many_ends_its_own_and_nobody_elses() -> None:
    far = pipes(32)
    theirs = await opened(far, "beta", "form")
    for number in range(40):
        await opened(far, "acme", f"kind-{number}")
    assert owners(far) == ["acme"] * EACH + ["beta"]
    assert not theirs.dead
    await far.close()


async def test_an_owner_whose_pipes_are_all_in_use_gets_no_more_while_others_do() -> None:
    far = pipes(32)
    for number in range(EACH):
        (await opened(far, "acme", f"kind-{number}")).busy = True
    with pytest.raises(Fault, match="as many as it may"):
        await opened(far, "acme", "one more")
    await opened(far, "beta", "form")
    await far.close()


async def test_where_all_is_full_the_owners_own_idle_one_goes_before_anybody_elses() -> None:
    far = pipes(3)
    oldest = await opened(far, "beta", "form")
    own = await opened(far, "acme", "form")
    await opened(far, "acme", "url")
    await opened(far, "acme", "roots")
    assert own.dead
    assert not oldest.dead
    await opened(far, "gamma", "form")  # has none of its own: whichever was not used for longest
    assert oldest.dead
    await far.close()


async def test_the_one_that_lists_are_read_from_never_makes_room() -> None:
    far = pipes(1)
    listing = await opened(far)
    with pytest.raises(Fault, match="as many as it may"):
        await opened(far, "acme", "form")
    assert not listing.dead
    await far.close()
