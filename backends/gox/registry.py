"""Registry of the Gox backends in this gateway process: their actions, their Studios, and worker liveness."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from backends.gox import runlog
from gateway.contract import Bus, Caller, Host, Json, Store
from gateway.errors import Fault

_PING_TOPIC: Final = "gox.alive"
_PING_TIMEOUT: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A registered Gox backend."""

    namespace: str
    actions: frozenset[str]
    studios: Callable[[Caller], list[Json]] | None = None


# Keyed by bus: the hosts of one gateway share only their bus. Contains no tenant data.
_members: Final[WeakKeyDictionary[Bus, list[Member]]] = WeakKeyDictionary()


@asynccontextmanager
async def register(host: Host, member: Member) -> AsyncGenerator[None]:
    """Keep the member registered while the context is open."""
    members = _members.setdefault(host.bus, [])
    members.append(member)
    host.bus.respond(_PING_TOPIC, _answer_ping)
    try:
        yield
    finally:
        members.remove(member)


def count_actions(host: Host) -> int:
    return sum(len(member.actions) for member in _current_members(host).values())


def list_studios(host: Host, caller: Caller) -> list[Json] | None:
    """Return the Studios of the caller's tenant, or None when no backend has a bridge."""
    bridged = [member.studios for member in _current_members(host).values() if member.studios is not None]
    return [studio for each in bridged for studio in each(caller)] if bridged else None


async def is_worker_alive(host: Host, worker: str) -> bool:
    if worker == host.bus.worker:
        return True
    try:
        await host.bus.request(worker, _PING_TOPIC, {}, _PING_TIMEOUT)
    except Fault:
        return False
    return True


async def fail_orphaned_runs(host: Host, store: Store) -> None:
    """Mark the running records of dead workers as failed."""
    for worker in await runlog.list_active_workers(store):
        if not await is_worker_alive(host, worker):
            await runlog.fail_runs_of_worker(store, worker)


async def _answer_ping(message: Json) -> Json:
    return {}


def _current_members(host: Host) -> dict[str, Member]:
    # After a settings change a backend is registered twice until the calls of the old instance finish; the last wins.
    return {member.namespace: member for member in _members.get(host.bus, [])}
