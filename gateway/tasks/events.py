"""Wakes requests of this worker that wait for a change of a task, wherever the task runs."""

import asyncio
from contextlib import suppress

from gateway.contract import ListChange


class TaskEvents:
    """Changes of tasks, by the id that the client has. Lossy: a waiting request also polls the database."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def on_change(self, change: ListChange) -> None:
        """Wake those who wait for the task of this change, which may have happened in any worker."""
        if change.kind == "task":
            for event in self._waiting.get(change.uri, ()):
                event.set()

    async def wait(self, public_id: str, seconds: float) -> None:
        """Wait for a change of this task, at most `seconds`."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(public_id, set())
        waiting.add(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        finally:
            waiting.discard(event)
            if not waiting and self._waiting.get(public_id) is waiting:
                del self._waiting[public_id]
