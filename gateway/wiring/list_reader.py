"""Reads the lists of backends without a running gateway, for commands that check settings against them."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, cast

from gateway.catalogue.persistence import SHARED, decode_lists
from gateway.catalogue.snapshot import Snapshot, take_snapshot
from gateway.contract import Json, Manifest, Store
from gateway.errors import Fault, ForeignError, Kind
from gateway.outbound import create_client
from gateway.settings import BackendEntry, ModuleBackend, Settings
from gateway.state.bus import MemoryBus
from gateway.state.readonly import read_stored_lists
from gateway.upstream.health import LoadError
from gateway.upstream.host import HostServices
from gateway.upstream.peers.service import PeerService
from gateway.upstream.stdio.orphan_reaper import OrphanReaper
from gateway.wiring.backends import load_module_entry, origin_of, remote_backend

log = logging.getLogger("gatehouse.check")

_READ_SECONDS: Final = 20.0
_MAX_BYTES: Final = 64 * 1024 * 1024
_INFO: Final[Json] = {"name": "gatehouse", "version": "check"}


async def read_lists(settings: Settings) -> dict[str, Snapshot]:
    """The lists of all backends; of remote servers and programs those that a gateway has stored, if it has.

    Lists that cannot be read are left out.
    """
    found: dict[str, Snapshot] = {}
    services, reaper = _services(settings), OrphanReaper()
    stored = read_stored_lists(settings.data_dir, SHARED) if settings.database.url is None else {}
    try:
        for namespace, entry in settings.backends.items():
            if entry.enabled and (snapshot := await _read(settings, namespace, entry, services, stored, reaper)):
                found[namespace] = snapshot
    finally:
        reaper.close()
        await services.http.aclose()
    return found


async def _read(
    settings: Settings,
    namespace: str,
    entry: BackendEntry,
    services: HostServices,
    stored: dict[str, tuple[str, str]],
    reaper: OrphanReaper,
) -> Snapshot | None:
    try:
        if isinstance(entry, ModuleBackend):
            # Its lifespan is not entered: a check must not start the work of a module.
            module = load_module_entry(settings, namespace, entry, services)
            async with asyncio.timeout(_READ_SECONDS):
                return take_snapshot(module, await module.fetch_lists(None))
        origin, text = stored.get(namespace, ("", ""))
        lists = decode_lists(text) if origin == origin_of(entry) else None
        remote = remote_backend(namespace, entry, Manifest(), info=_INFO, max_bytes=_MAX_BYTES, orphan_reaper=reaper)
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return take_snapshot(remote, lists or await remote.fetch_lists(None))
        finally:
            await remote.close()
    except (Fault, ForeignError, LoadError, TimeoutError) as exc:
        log.debug("check %s: the lists cannot be read: %s", namespace, exc)
    except Exception:
        # A module's list handler may need its lifespan and fail in any way without it.
        log.debug("check %s: the lists cannot be read", namespace, exc_info=True)
    return None


class _NoStores:
    """The stores of a gateway that does not run."""

    def store(self, tenant: str, name: str, migrations: object) -> Store:
        raise Fault(Kind.UNAVAILABLE, "The gateway does not run.")

    async def tenants(self, name: str) -> tuple[str, ...]:
        return ()


def _services(settings: Settings) -> HostServices:
    bus = MemoryBus("check")
    return HostServices(
        stores=_NoStores(),
        files=settings.files_dir,
        bus=bus,
        http=create_client(),
        loopback=True,
        peers=PeerService(bus).for_backend,
        invoke=cast("Any", _refuse),
        has_tool=lambda caller, tool: False,
        find_tool=lambda caller, tool: None,
        is_authorized=cast("Any", _refuse),
        spawn=_discard,
        ready=cast("Any", _refuse),
        record_work=lambda work: None,
    )


async def _refuse(*_arguments: object) -> None:
    raise Fault(Kind.UNAVAILABLE, "The gateway does not run.")


def _discard(work: Coroutine[Any, Any, None]) -> None:
    work.close()
