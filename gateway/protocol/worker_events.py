"""Events that a worker broadcasts to the other workers: cancellations, ended sessions, subscriptions, list changes.

Delivery is at most once, to the workers that are connected. Facts that must not be lost are stored in the database
as well.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.contract import Bus, Json
from gateway.errors import Fault

_TOPIC: Final = "news"

log = logging.getLogger("gatehouse.protocol")

EventHandler = Callable[[Json], Awaitable[None] | None]


class WorkerEvents:
    """Publishes events to the other workers and dispatches theirs."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._handlers: dict[str, EventHandler] = {}

    def subscribe(self, event: str, handler: EventHandler) -> None:
        """Call `handler` with the payload of each such event of another worker, one at a time and in order.

        Events of this worker are not delivered to it. An event has one handler.
        """
        self._handlers[event] = handler

    async def publish(self, event: str, payload: Json) -> None:
        try:
            await self._bus.publish(_TOPIC, {"from": self._bus.worker, "word": event, "about": payload})
        except Fault:
            log.warning("worker event %s could not be published; the other workers do not get it", event)

    async def run(self) -> None:
        """Dispatch events until cancelled."""
        async with self._bus.subscribe(_TOPIC) as messages:
            async for message in messages:
                handler = self._handlers.get(message["word"])
                if handler is None or message["from"] == self._bus.worker:
                    continue
                try:
                    pending = handler(message["about"])
                    if pending is not None:
                        await pending
                except Exception:  # A failed handler must not end the dispatch of later events.
                    log.exception("worker event %s: handler failed; the event is skipped", message["word"])
