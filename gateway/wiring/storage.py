"""Opens the databases, the bus and the outbound HTTP client."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from gateway.outbound import DIRECT, OutboundRoute, create_client
from gateway.settings import Settings
from gateway.state.audit import AUDIT_SECRET, AuditLog
from gateway.state.bus import MemoryBus, open_bus
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.sessions import SessionRows
from gateway.state.stores import SqliteStores, open_stores
from gateway.state.tenants import Tenants

if TYPE_CHECKING:
    from gateway.state.postgres_stores import PostgresStores
    from gateway.state.redis_bus import RedisBus


@dataclass(frozen=True, slots=True)
class Storage:
    """Everything that outlives a request or leaves the process."""

    database: Database
    tenants: Tenants
    sessions: SessionRows
    audit: AuditLog
    stores: "SqliteStores | PostgresStores"
    http: httpx.AsyncClient
    bus: "MemoryBus | RedisBus"

    @classmethod
    async def open(
        cls,
        settings: Settings,
        on_close: Callable[[Callable[[], Awaitable[None]]], object],
        route: OutboundRoute = DIRECT,
    ) -> "Storage":
        """Open all parts. Each registers its `close` as soon as it is open, because a later part may fail."""
        url = settings.database.url.get_secret_value() if settings.database.url is not None else None
        database = await Database.open(settings.data_dir, url)
        on_close(database.close)
        audit = await AuditLog.open(
            settings.data_dir,
            load_secret(settings.data_dir / "secrets", AUDIT_SECRET),
            settings.audit.keep_days,
            settings.audit.max_records,
            url,
            sync=settings.audit.durability == "strict",
        )
        on_close(audit.close)
        stores = await open_stores(settings.files_dir / "stores", url, settings.database.connections)
        on_close(stores.close)
        http = create_client(route=route)
        on_close(http.aclose)
        at = settings.bus.url.get_secret_value() if settings.bus.url is not None else None
        bus = await open_bus(at, settings.bus.prefix)
        on_close(bus.close)
        return cls(database, await Tenants.open(database), await SessionRows.open(database), audit, stores, http, bus)
