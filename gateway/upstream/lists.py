"""Reads all lists of an upstream server page by page, and watches them for changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Protocol, cast

from gateway.contract import TASKS_EXTENSION, BackendLists, Json, ListChange, declares_tasks
from gateway.errors import Fault, ForeignError
from gateway.upstream.conversation import NullMessageHandler, parse_change, server_capabilities

log = logging.getLogger("gatehouse.upstream")

_LISTS: Final = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
)
"""Method, result key and required server capability of each list."""

_MAX_PAGES: Final = 100
_METHOD_NOT_FOUND: Final = -32601
INITIAL_BACKOFF_SECONDS: Final = 1.0
MAX_BACKOFF_SECONDS: Final = 30.0


class ListSource(Protocol):
    """One server, as seen by the gateway's own requests."""

    async def discover(self) -> Json:
        """Return the server's `initialize` or `server/discover` result: capabilities, instructions, server info."""
        ...

    async def request(self, method: str, params: Json) -> Json: ...


async def read_lists(source: ListSource) -> BackendLists:
    discovery = await source.discover()
    capabilities = _without_foreign_tasks(discovery, server_capabilities(discovery))
    info: Any = discovery.get("serverInfo")
    lists: dict[str, tuple[Json, ...]] = {}
    for method, key, capability in _LISTS:
        lists[key] = await _read_pages(source, method, key) if capability in capabilities else ()
    return BackendLists(
        tools=lists["tools"],
        resources=lists["resources"],
        templates=lists["resourceTemplates"],
        prompts=lists["prompts"],
        capabilities=capabilities,
        instructions=str(discovery.get("instructions") or ""),
        info=cast("Json", info) if isinstance(info, dict) else {},
    )


def _without_foreign_tasks(discovery: Json, capabilities: Json) -> Json:
    """Remove the form of tasks that the era of this result does not have: the two do not translate."""
    if "supportedVersions" in discovery:
        return {key: value for key, value in capabilities.items() if key != "tasks"}
    if declares_tasks(capabilities):
        extensions = {key: value for key, value in capabilities["extensions"].items() if key != TASKS_EXTENSION}
        return {**capabilities, "extensions": extensions}
    return capabilities


def merge_lists(all_lists: Sequence[BackendLists]) -> BackendLists:
    """Merge the lists of several processes of one server; for a repeated name the first definition wins."""
    if len(all_lists) == 1:
        return all_lists[0]
    first = all_lists[0]
    tools = _union([each.tools for each in all_lists], "name")
    return BackendLists(
        tools=tools,
        resources=_union([each.resources for each in all_lists], "uri"),
        templates=_union([each.templates for each in all_lists], "uriTemplate"),
        prompts=_union([each.prompts for each in all_lists], "name"),
        capabilities={key: value for each in reversed(all_lists) for key, value in each.capabilities.items()},
        instructions=first.instructions,
        info=first.info,
        variants=_variants(tools, [each.tools for each in all_lists]),
    )


def _variants(listed: tuple[Json, ...], lists: Sequence[tuple[Json, ...]]) -> tuple[Json, ...]:
    """Definitions of tools that differ from the listed definition of the same name."""
    chosen = {repr(_name(item)): item for item in listed}
    return tuple(
        item for item in chain.from_iterable(lists) if _name(item) is not None and chosen[repr(_name(item))] != item
    )


def _name(item: Any) -> Any:
    return cast("Json", item).get("name") if isinstance(item, dict) else None


def _union(lists: Sequence[tuple[Json, ...]], key: str) -> tuple[Json, ...]:
    unique: dict[str, Json] = {}
    for item in chain.from_iterable(lists):
        # Items are not validated yet: the catalogue rejects each item that is not an object.
        unique.setdefault(repr(item.get(key) if isinstance(item, dict) else item), item)  # pyright: ignore[reportUnnecessaryIsInstance]
    return tuple(unique.values())


async def _read_pages(source: ListSource, method: str, key: str) -> tuple[Json, ...]:
    items: list[Json] = []
    params: Json = {}
    for _ in range(_MAX_PAGES):
        try:
            page = await source.request(method, params)
        except ForeignError as exc:
            if exc.code == _METHOD_NOT_FOUND:
                break  # the server has the capability but not this list
            raise
        page_items: Any = page.get(key)
        if isinstance(page_items, list):
            items.extend(cast("list[Json]", page_items))
        if (cursor := page.get("nextCursor")) is None:
            break
        params = {"cursor": cursor}
    return tuple(items)


def _ignore() -> None:
    """Default of `on_ready`."""


class ChangeListener(NullMessageHandler):
    """Translates change notifications of the server to `ListChange` values."""

    def __init__(self, on_change: Callable[[ListChange], None], on_ready: Callable[[], None] = _ignore) -> None:
        self._on_change = on_change
        self.on_ready = on_ready
        """Called once the server has confirmed the subscription."""

    async def on_notification(self, method: str, params: Json) -> None:
        if (change := parse_change(method, params)) is not None:
            self._on_change(change)
        elif method == "notifications/subscriptions/acknowledged":
            self.on_ready()


class ListWatcher:
    """Keeps `listen` running in a task and restarts it with exponential backoff.

    Stops when the server does not support change notifications (`ForeignError`).
    """

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
        backoff = INITIAL_BACKOFF_SECONDS
        while True:
            started_at = asyncio.get_running_loop().time()
            try:
                await self._listen()
            except ForeignError as exc:
                log.info("upstream %s: no change notifications: %s", self._name, exc.message)
                return
            except Fault as fault:
                log.debug("upstream %s: change stream failed; retry with backoff: %s", self._name, fault.message)
            except Exception:  # the watcher must survive, or later changes are missed
                log.exception("upstream %s: change stream failed; retry with backoff", self._name)
            duration = asyncio.get_running_loop().time() - started_at
            backoff = (
                INITIAL_BACKOFF_SECONDS if duration > MAX_BACKOFF_SECONDS else min(backoff * 2, MAX_BACKOFF_SECONDS)
            )
            await asyncio.sleep(backoff)
