"""Lets credentials expire without waiting: tests give them an hour and then move the gateway's clock."""

import asyncio
import time

from gateway.app import Gateway

HOUR = 3600.0
_TOLERANCE = 60.0


def expire_credentials(gateway: Gateway, seconds: float = HOUR) -> None:
    """Move the clock by which credentials expire, and end the streams whose timers have run out by then.

    Fails if the timer of a stream is not set to the expiry of its credential.
    """
    identity, expiry = gateway.identity, gateway.identity.stream_expiry

    def later() -> float:
        return time.time() + seconds

    for stream, (caller, timer) in list(expiry._open.items()):
        if caller.expires is None:
            assert timer is None
            continue
        assert timer is not None
        due = caller.expires + (expiry._grace if caller.token else 0.0)
        remaining = timer.when() - asyncio.get_running_loop().time()
        assert abs(remaining - (due - time.time())) < _TOLERANCE
        if due <= later():
            expiry._expire(stream)
    identity.keys._clock = later
    identity._bearer.clear()


async def wait_for_streams(gateway: Gateway, count: int) -> None:
    """Wait until this many streams, sockets and held requests are open."""
    async with asyncio.timeout(5):
        while len(gateway.identity.stream_expiry._open) != count:
            await asyncio.sleep(0.005)
