"""The database of the settings, as every command that opens it itself does.

The database as commands open it that change who may sign in; a running server notices within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.auth.revocations import Revocations
from gateway.cli.failure import Failure, system_errors_explained
from gateway.cli.load_settings import read_without_backends
from gateway.settings import Settings
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants


async def open_database(settings: Settings) -> Database:
    """PostgreSQL where the settings name one, else the file in the data folder. Raises `Fault(UNAVAILABLE)`."""
    at = settings.database.url
    return await Database.open(settings.data_dir, at.get_secret_value() if at is not None else None)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Books:
    settings: Settings
    database: Database
    revocations: Revocations
    tenants: frozenset[str]

    def secret(self, name: str) -> bytes:
        return load_secret(self.settings.data_dir / "secrets", name)

    def check_tenant(self, name: str) -> None:
        if name not in self.tenants:
            known = ", ".join(sorted(self.tenants))
            raise Failure(f"no tenant is named {name} (known: {known}); add it under tenants: in the settings")


def with_books(config: Path | None, work: Callable[[Books], Awaitable[T]]) -> T:
    settings = read_without_backends(config)

    async def run() -> T:
        database = await open_database(settings)
        try:
            tenants = await Tenants.open(database)
            names = frozenset(settings.tenants) | {tenant.name for tenant in tenants.all()}
            return await work(Books(settings, database, await Revocations.open(database), names))
        finally:
            await database.close()

    with system_errors_explained(settings):
        return asyncio.run(run())
