"""The wire of a call that is or may become a task: the client's own wire at first, later the database."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from gateway.contract import Call, Json, Wire
from gateway.errors import Fault, Kind
from gateway.protocol.multi_round import missing_capabilities, without_elicitation_id

MAX_MESSAGES: Final = 50
MAX_NOTES_BYTES: Final = 32 * 1024
_MESSAGE_CHARS: Final = 256


class TaskNotes:
    """The last progress notification and the last log messages of a task, bounded in number and size."""

    def __init__(self) -> None:
        self._progress: Json | None = None
        self._messages: list[Json] = []
        self._sizes: list[int] = []
        self.status_message = ""
        self.is_dirty = False

    def add(self, method: str, params: Json) -> None:
        if method == "notifications/progress":
            self._progress = {key: params[key] for key in ("progress", "total", "message") if key in params}
            self.status_message = _progress_text(self._progress)
        elif method == "notifications/message":
            size = len(msgspec.json.encode(params))
            if size > MAX_NOTES_BYTES // 4:
                return
            self._messages.append(params)
            self._sizes.append(size)
            while len(self._messages) > MAX_MESSAGES or sum(self._sizes) > MAX_NOTES_BYTES:
                del self._messages[0], self._sizes[0]
        else:
            return
        self.is_dirty = True

    def take(self) -> Json:
        """Return everything that is kept, to be stored."""
        self.is_dirty = False
        notes: Json = {"messages": self._messages}
        if self._progress is not None:
            notes["progress"] = self._progress
        return notes


def _progress_text(progress: Json) -> str:
    message: Any = progress.get("message")
    if isinstance(message, str) and message:
        return message[:_MESSAGE_CHARS]
    total = progress.get("total")
    return f"{progress.get('progress')} of {total}" if total is not None else ""


class InputStore(Protocol):
    """Publishes the input requests of a task, and returns the client's answers."""

    @property
    def is_detached(self) -> bool: ...

    async def request_input(self, requests: Mapping[str, Json]) -> dict[str, Json]: ...


class TaskWire:
    """Implements `Wire`. Until the task is detached, everything goes to the client as in any other call."""

    def __init__(self, call: Call, task: InputStore, notes: TaskNotes) -> None:
        self._inner: Wire = call.wire
        self._client = call.client
        self._task = task
        self._notes = notes
        self._round = 0
        self._waited = 0.0
        self._asked_at: float | None = None
        self.is_asking = False
        """Whether the client is being asked over its connection: the call cannot detach meanwhile."""

    @property
    def waited(self) -> float:
        own = self._waited if self._asked_at is None else self._waited + time.monotonic() - self._asked_at
        return self._inner.waited + own

    async def notify(self, method: str, params: Json) -> None:
        if self._task.is_detached:
            self._notes.add(method, params)
        else:
            await self._inner.notify(method, params)

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        if not self._task.is_detached:
            self.is_asking = True
            try:
                return await self._inner.ask(requests)
            finally:
                self.is_asking = False
        missing = missing_capabilities(self._client.capabilities, dict(requests))
        if missing:
            raise Fault(Kind.UNSUPPORTED, f"The client does not support {' and '.join(missing)}.")
        self._round += 1
        # A key is used once in the life of a task.
        keys = {key: key if self._round == 1 else f"{key}-{self._round}" for key in requests}
        shown = {keys[key]: without_elicitation_id(request) for key, request in requests.items()}
        self._asked_at = time.monotonic()
        try:
            answers = await self._task.request_input(shown)
        finally:
            self._waited += time.monotonic() - self._asked_at
            self._asked_at = None
        return {key: answers[keys[key]] for key in requests}

    async def end_response(self) -> None:
        if not self._task.is_detached:
            await self._inner.end_response()


async def wait_first(job: "asyncio.Task[Any]", event: asyncio.Event, timeout: float | None) -> None:
    """Wait until the job is done or the event is set, at most `timeout` seconds."""
    flag = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({job, flag}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        flag.cancel()
