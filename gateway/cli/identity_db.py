"""The database of the settings, as every command that opens it itself does.

The database as commands open it that change who may sign in; a running server notices within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gateway.auth.revocations import Revocations
from gateway.cli.failure import CommandError, system_errors_explained
from gateway.cli.load_settings import read_without_backends
from gateway.contract.caller import EVERYDAY, SCOPES
from gateway.settings import Settings
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants


async def open_database(settings: Settings) -> Database:
    """PostgreSQL where the settings name one, else the file in the data folder. Raises `Fault(UNAVAILABLE)`."""
    at = settings.database.url
    return await Database.open(settings.data_dir, at.get_secret_value() if at is not None else None)


T = TypeVar("T")

_OURS: Final = ("mcp:", "bridge:")


@dataclass(frozen=True, slots=True)
class IdentityDatabase:
    settings: Settings
    database: Database
    revocations: Revocations
    tenants: frozenset[str]

    def secret(self, name: str) -> bytes:
        return load_secret(self.settings.data_dir / "secrets", name)

    def check_tenant(self, name: str) -> None:
        if name not in self.tenants:
            known = ", ".join(sorted(self.tenants))
            raise CommandError(f"no tenant is named {name} (known: {known}); add it under tenants: in the settings")


def with_books(config: Path | None, work: Callable[[IdentityDatabase], Awaitable[T]]) -> T:
    settings = read_without_backends(config)

    async def run() -> T:
        database = await open_database(settings)
        try:
            tenants = await Tenants.open(database)
            names = frozenset(settings.tenants) | {tenant.name for tenant in tenants.all()}
            return await work(IdentityDatabase(settings, database, await Revocations.open(database), names))
        finally:
            await database.close()

    with system_errors_explained(settings):
        return asyncio.run(run())


def checked_scopes(given: Iterable[str] | None, *, for_policies: bool = False) -> tuple[str, ...]:
    """The everyday ones unless any is given. Raises `Failure` for one that there is not: it would open nothing.

    `for_policies`: others than the house's own kinds may be given too, for policies of the organisation to speak of.
    """
    scopes = tuple(given or EVERYDAY)
    unknown = sorted(set(scopes) - SCOPES)
    if for_policies:
        unknown = [scope for scope in unknown if ":" not in scope or scope.startswith(_OURS)]
    if unknown:
        raise CommandError(f"no scope is named {unknown[0]} (known: {', '.join(sorted(SCOPES))})", code=2)
    return scopes
