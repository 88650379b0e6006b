"""Database index of a tenant's runs. It also enforces the uniqueness of idempotency keys."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text

from gateway.contract import Store

MAX_LISTED: Final = 1000
"""Maximum number of runs in a list; the newest are returned."""

_COLUMNS: Final = "run_id, idempotency_key, config_hash, product_slug, state, started_at, finished_at"
# No conflict target: the unique index may also contain the tenant column, where tenants share a table.
_INSERT: Final = text(
    f"INSERT INTO launch_runs ({_COLUMNS}) VALUES (:run_id, :idempotency_key, :config_hash, :product_slug, :state,"  # noqa: S608
    " :started_at, :finished_at) ON CONFLICT DO NOTHING"
)
_BY_ID: Final = text(f"SELECT {_COLUMNS} FROM launch_runs WHERE run_id = :value")  # noqa: S608
_BY_KEY: Final = text(f"SELECT {_COLUMNS} FROM launch_runs WHERE idempotency_key = :value")  # noqa: S608
_SET_STATE: Final = text("UPDATE launch_runs SET state = :state, finished_at = :finished_at WHERE run_id = :run_id")
_LIST: Final = text(
    f"SELECT {_COLUMNS} FROM launch_runs WHERE (:product_slug = '' OR product_slug = :product_slug)"  # noqa: S608
    f" ORDER BY started_at DESC, run_id DESC LIMIT {MAX_LISTED}"
)

_COUNT_OPEN: Final = text("SELECT COUNT(*) FROM launch_runs WHERE state NOT IN ('DONE', 'FAILED', 'CANCELLED')")


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the index."""

    run_id: str
    idempotency_key: str | None
    config_hash: str
    product_slug: str
    state: str
    started_at: str
    finished_at: str | None

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


async def add(store: Store, entry: Entry) -> bool:
    """Insert the entry. Returns False when another run has the same idempotency key."""
    async with store.transaction() as connection:
        return (await connection.execute(_INSERT, entry.as_row())).rowcount == 1


async def count_open(store: Store) -> int:
    """Count the runs that have not ended."""
    async with store.transaction() as connection:
        return (await connection.execute(_COUNT_OPEN)).scalar_one()


async def by_id(store: Store, run_id: str) -> Entry | None:
    return await _select_one(store, _BY_ID, run_id)


async def by_key(store: Store, key: str) -> Entry | None:
    return await _select_one(store, _BY_KEY, key)


async def set_state(store: Store, run_id: str, state: str, finished_at: str | None) -> None:
    async with store.transaction() as connection:
        await connection.execute(_SET_STATE, {"run_id": run_id, "state": state, "finished_at": finished_at})


async def list_entries(store: Store, product_slug: str | None) -> list[Entry]:
    """List the runs, newest first, optionally of one product."""
    async with store.transaction() as connection:
        rows = await connection.execute(_LIST, {"product_slug": product_slug or ""})
        return [Entry(*row) for row in rows]


async def _select_one(store: Store, statement: Any, value: str) -> Entry | None:
    async with store.transaction() as connection:
        row = (await connection.execute(statement, {"value": value})).first()
        return None if row is None else Entry(*row)
