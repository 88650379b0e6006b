"""All that a server lists, page by page.

Following a remote server's changes: one long request, made again whenever it ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Protocol, cast

from gateway.contract import BackendLists, Json, ListChange
from gateway.errors import Fault, ForeignError
from gateway.upstream.conversation import NullMessageHandler, change_of, offered

_LISTS: Final = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
)

_MAX_PAGES: Final = 100

_METHOD_NOT_FOUND: Final = -32601


class ListSource(Protocol):
    """One server, asked by the gateway itself."""

    async def hello(self) -> Json:
        """Its capabilities and instructions."""
        ...

    async def ask(self, method: str, params: Json) -> Json: ...


async def read_lists(source: ListSource) -> BackendLists:
    hello = await source.hello()
    capabilities = offered(hello)
    info: Any = hello.get("serverInfo")
    lists: dict[str, tuple[Json, ...]] = {}
    for method, key, capability in _LISTS:
        lists[key] = await _all(source, method, key) if capability in capabilities else ()
    return BackendLists(
        tools=lists["tools"],
        resources=lists["resources"],
        templates=lists["resourceTemplates"],
        prompts=lists["prompts"],
        capabilities=capabilities,
        instructions=str(hello.get("instructions") or ""),
        info=cast("Json", info) if isinstance(info, dict) else {},
    )


def together(offers: Sequence[BackendLists]) -> BackendLists:
    """Everything that any of several processes of one server lists; the first to name a thing defines it."""
    if len(offers) == 1:
        return offers[0]
    first = offers[0]
    return BackendLists(
        tools=_union([each.tools for each in offers], "name"),
        resources=_union([each.resources for each in offers], "uri"),
        templates=_union([each.templates for each in offers], "uriTemplate"),
        prompts=_union([each.prompts for each in offers], "name"),
        capabilities={key: value for each in reversed(offers) for key, value in each.capabilities.items()},
        instructions=first.instructions,
        info=first.info,
    )


def _union(lists: Sequence[tuple[Json, ...]], key: str) -> tuple[Json, ...]:
    kept: dict[str, Json] = {}
    for item in chain.from_iterable(lists):
        # Not checked yet: whatever stands in a list that is no object is refused later, by itself.
        kept.setdefault(repr(item.get(key) if isinstance(item, dict) else item), item)  # pyright: ignore[reportUnnecessaryIsInstance]
    return tuple(kept.values())


async def _all(source: ListSource, method: str, key: str) -> tuple[Json, ...]:
    items: list[Json] = []
    params: Json = {}
    for _ in range(_MAX_PAGES):
        try:
            page = await source.ask(method, params)
        except ForeignError as exc:
            if exc.code == _METHOD_NOT_FOUND:
                break  # it has the capability but not this list
            raise
        found: Any = page.get(key)
        if isinstance(found, list):
            items.extend(cast("list[Json]", found))
        if (cursor := page.get("nextCursor")) is None:
            break
        params = {"cursor": cursor}
    return tuple(items)


log = logging.getLogger("gatehouse.upstream")

FIRST_PAUSE: Final = 1.0

LONGEST_PAUSE: Final = 30.0


def _no_matter() -> None:
    """Nobody waits for it."""


class ChangeListener(NullMessageHandler):
    """Turns what the server notifies into changes."""

    def __init__(self, changed: Callable[[ListChange], None], ready: Callable[[], None] = _no_matter) -> None:
        self._changed = changed
        self.ready = ready
        """To be called once the server listens to what it was asked."""

    async def notified(self, method: str, params: Json) -> None:
        if (change := change_of(method, params)) is not None:
            self._changed(change)
        elif method == "notifications/subscriptions/acknowledged":
            self.ready()


class ListWatcher:
    """Keeps `listen` running; between two attempts it waits longer and longer."""

    def __init__(self, name: str, listen: Callable[[], Awaitable[Any]]) -> None:
        self._name = name
        self._listen = listen
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"follow:{self._name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def restart(self) -> None:
        await self.stop()
        self.start()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._listen()
            except ForeignError as exc:
                log.info("%s does not tell of its changes: %s", self._name, exc.message)
                return
            except Fault as fault:
                log.debug("%s cannot be followed: %s", self._name, fault.message)
            except Exception:  # whatever it was, what changes later is to be heard
                log.exception("%s cannot be followed", self._name)
            lasted = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE if lasted > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)
