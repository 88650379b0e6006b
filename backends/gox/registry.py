"""What the Gox backends of one house know of each other: which actions there are, which Studios, who is alive."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from backends.gox import runlog
from gateway.contract import Bus, Caller, Host, Json, Store
from gateway.errors import Fault

_ALIVE: Final = "gox.alive"
_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One backend, as the others may know it."""

    namespace: str
    actions: frozenset[str]
    studios: Callable[[Caller], list[Json]] | None = None


# Homes of one house share its bus, and nothing else that could name the house. No tenant's data is in here.
_parts: Final[WeakKeyDictionary[Bus, list[Part]]] = WeakKeyDictionary()


@asynccontextmanager
async def joined(home: Host, part: Part) -> AsyncGenerator[None]:
    """The part is known to the others as long as the block lasts."""
    parts = _parts.setdefault(home.bus, [])
    parts.append(part)
    home.bus.respond(_ALIVE, _alive)
    try:
        yield
    finally:
        parts.remove(part)


def actions_count(home: Host) -> int:
    return sum(len(part.actions) for part in _newest(home).values())


def studios(home: Host, caller: Caller) -> list[Json] | None:
    """The Studios of the caller's tenant; None when no backend has a bridge."""
    bridged = [part.studios for part in _newest(home).values() if part.studios is not None]
    return [studio for each in bridged for studio in each(caller)] if bridged else None


async def alive(home: Host, worker: str) -> bool:
    if worker == home.bus.worker:
        return True
    try:
        await home.bus.request(worker, _ALIVE, {}, _PATIENCE)
    except Fault:
        return False
    return True


async def end_orphans(home: Host, store: Store) -> None:
    """Records that a worker left running when it died are ended."""
    for worker in await runlog.workers(store):
        if not await alive(home, worker):
            await runlog.end_orphans(store, worker)


async def _alive(message: Json) -> Json:
    return {}


def _newest(home: Host) -> dict[str, Part]:
    # A backend whose settings changed is there twice until the old one's calls are done.
    return {part.namespace: part for part in _parts.get(home.bus, [])}
