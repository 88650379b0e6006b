"""What everything else stands on: the databases, the bus, the way out to the network."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from gateway.outbound import client
from gateway.settings import Settings
from gateway.state.audit import AuditLog
from gateway.state.bus import MemoryBus, open_bus
from gateway.state.database import Database
from gateway.state.sessions import SessionRows
from gateway.state.stores import Stores, open_stores
from gateway.state.tenants import Tenants

if TYPE_CHECKING:
    from gateway.state.postgres_stores import PostgresStores
    from gateway.state.redis_bus import RedisBus


@dataclass(frozen=True, slots=True)
class Storage:
    database: Database
    tenants: Tenants
    sessions: SessionRows
    audit: AuditLog
    stores: "Stores | PostgresStores"
    http: httpx.AsyncClient
    bus: "MemoryBus | RedisBus"

    @classmethod
    async def open(cls, settings: Settings, leave: Callable[[Callable[[], Awaitable[None]]], object]) -> "Storage":
        """Each is handed to `leave` as soon as it is open: what comes after it may fail."""
        url = settings.database.url.get_secret_value() if settings.database.url is not None else None
        database = await Database.open(settings.data_dir, url)
        leave(database.close)
        audit = await AuditLog.open(settings.data_dir, settings.audit.keep_days, settings.audit.max_records, url)
        leave(audit.close)
        stores = await open_stores(settings.files_dir / "stores", url, settings.database.connections)
        leave(stores.close)
        http = client()
        leave(http.aclose)
        at = settings.bus.url.get_secret_value() if settings.bus.url is not None else None
        bus = await open_bus(at, settings.bus.prefix)
        leave(bus.close)
        return cls(database, await Tenants.open(database), await SessionRows.open(database), audit, stores, http, bus)
