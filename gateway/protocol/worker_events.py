"""What happened in one worker and others have to know: cancellations, ended sessions, subscriptions, changes.

Told to whoever is there, and to nobody else: what must not be missed is a row in the database as well.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.contract import Bus, Json
from gateway.errors import Fault

_TOPIC: Final = "news"

log = logging.getLogger("gatehouse.news")

Heard = Callable[[Json], Awaitable[None] | None]


class WorkerEvents:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._heard: dict[str, Heard] = {}

    def on(self, word: str, heard: Heard) -> None:
        """Call `heard` with what another worker tells under that word; never with what this one does.

        News is taken one after the other, in the order it was told.
        """
        self._heard[word] = heard

    async def tell(self, word: str, about: Json) -> None:
        try:
            await self._bus.publish(_TOPIC, {"from": self._bus.worker, "word": word, "about": about})
        except Fault:
            log.warning("the other workers could not be told of %s", word)

    async def run(self) -> None:
        """Listen, for ever."""
        async with self._bus.subscribe(_TOPIC) as messages:
            async for message in messages:
                heard = self._heard.get(message["word"])
                if heard is None or message["from"] == self._bus.worker:
                    continue
                try:
                    taken = heard(message["about"])
                    if taken is not None:
                        await taken
                except Exception:  # one piece of news that cannot be understood must not end the listening
                    log.exception("news of %s could not be taken", message["word"])
