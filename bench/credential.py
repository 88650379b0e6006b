"""`python -m bench.credential`: compares the CPU cost of authenticating a cached token and a cached API key.

Measures 100,000 lookups in a loop, best of 20 rounds, in one process.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Final

from gateway.auth.api_keys import format_key, new_id, new_secret
from gateway.contract import Caller
from gateway.edge.authentication import BearerAuthenticator

LOOKUPS: Final = 100_000
ROUNDS: Final = 20
MAX_EXTRA_US: Final = 5.0
"""Maximum extra microseconds of a token over a key."""
TOKEN_LENGTH: Final = 720
"""Length in characters of an access token issued by the gateway."""


async def _measure(bearer: BearerAuthenticator, headers: Mapping[str, str], rounds: int, lookups: int) -> float:
    """Return the CPU microseconds of one lookup, in the best round."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(lookups):
            await bearer.authenticate(headers, "127.0.0.1")
        best = min(best, (time.process_time() - started) / lookups * 1e6)
    return best


async def measure(rounds: int = ROUNDS, lookups: int = LOOKUPS) -> tuple[float, float]:
    """Return the microseconds of a key and of a token."""
    key, token = format_key(new_id(), new_secret()), "x" * TOKEN_LENGTH
    callers: Mapping[str, Caller] = {
        key: Caller("default", "alice", credential="k"),
        token: Caller("default", "alice", credential="f", token="t", client="c", expires=time.time() + 86400),
    }

    async def verify(text: str) -> Caller | None:
        return callers.get(text)

    bearer = BearerAuthenticator(verify, ttl=86400)
    costs = [await _measure(bearer, {"authorization": f"Bearer {text}"}, rounds, lookups) for text in (key, token)]
    return costs[0], costs[1]


def main() -> int:
    key, token = asyncio.run(measure())
    print(
        f"cached key {key:.2f} µs, cached token {token:.2f} µs: {token - key:+.2f} µs (at most {MAX_EXTRA_US:g} more)"
    )
    return 0 if token - key <= MAX_EXTRA_US else 1


if __name__ == "__main__":
    sys.exit(main())
