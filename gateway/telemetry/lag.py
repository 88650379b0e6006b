"""How late the event loop is: what every call on it pays before anything else."""

import asyncio
from collections import deque
from typing import Final

EVERY: Final = 0.25
KEPT: Final = 60


class Lag:
    """The worst of the last quarter of a minute."""

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=KEPT)

    @property
    def worst(self) -> float:
        return max(self._late, default=0.0)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY
            await asyncio.sleep(EVERY)
            self._late.append(max(0.0, loop.time() - due))
