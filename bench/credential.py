"""`python -m bench.credential`: what a cached token costs at the door beside a cached API key.

CPU of 100,000 lookups in a loop, best of 20, in one process with nothing else.
"""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Final

from gateway.auth.key_text import new_id, new_secret, spell
from gateway.contract import Caller
from gateway.edge.bearer import Bearer

LOOKUPS: Final = 100_000
ROUNDS: Final = 20
ALLOWED: Final = 5.0
"""Microseconds that a token may cost more."""
TOKEN_LENGTH: Final = 720
"""Characters of an access token of ours."""


async def _best(bearer: Bearer, header: str, rounds: int, lookups: int) -> float:
    """Microseconds of CPU for one lookup."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(lookups):
            await bearer.caller(header, "127.0.0.1")
        best = min(best, (time.process_time() - began) / lookups * 1e6)
    return best


async def measure(rounds: int = ROUNDS, lookups: int = LOOKUPS) -> tuple[float, float]:
    """A key's and a token's microseconds."""
    key, token = spell(new_id(), new_secret()), "x" * TOKEN_LENGTH
    known: Mapping[str, Caller] = {
        key: Caller("default", "alice", credential="k"),
        token: Caller("default", "alice", credential="f", token="t", client="c", expires=time.time() + 86400),
    }

    async def verify(text: str) -> Caller | None:
        return known.get(text)

    bearer = Bearer(verify, ttl=86400)
    costs = [await _best(bearer, f"Bearer {text}", rounds, lookups) for text in (key, token)]
    return costs[0], costs[1]


def main() -> int:
    key, token = asyncio.run(measure())
    print(f"cached key {key:.2f} µs, cached token {token:.2f} µs: {token - key:+.2f} µs (at most {ALLOWED:g} more)")
    return 0 if token - key <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
