"""Database access for commands that manage identities. A running gateway notices their changes within a second."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from gateway.auth.revocations import Revocations
from gateway.cli.failure import CommandError, explain_system_errors
from gateway.cli.load_settings import add_module_paths, read_settings_leniently
from gateway.contract.caller import DEFAULT_SCOPES, SCOPES
from gateway.settings import Settings
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants


async def open_database(settings: Settings) -> Database:
    """Open PostgreSQL if `database.url` is set, else the SQLite file in `data_dir`. Raises `Fault(UNAVAILABLE)`."""
    at = settings.database.url
    return await Database.open(settings.data_dir, at.get_secret_value() if at is not None else None)


T = TypeVar("T")
_GATEWAY_PREFIXES: Final = ("mcp:", "bridge:")


@dataclass(frozen=True, slots=True)
class IdentityDatabase:
    """The open database with the settings, revocations and tenant names that a command needs."""

    settings: Settings
    database: Database
    revocations: Revocations
    tenants: frozenset[str]

    def secret(self, name: str) -> bytes:
        return load_secret(self.settings.data_dir / "secrets", name)

    def check_tenant(self, name: str) -> None:
        if name not in self.tenants:
            known = ", ".join(sorted(self.tenants))
            raise CommandError(f"there is no tenant {name} (known: {known}); add it under tenants: in the settings")


def with_identity_database(config: Path | None, work: Callable[[IdentityDatabase], Awaitable[T]]) -> T:
    settings = read_settings_leniently(config)

    async def run() -> T:
        database = await open_database(settings)
        try:
            tenants = await Tenants.open(database)
            names = frozenset(settings.tenants) | {tenant.name for tenant in tenants.all()}
            return await work(IdentityDatabase(settings, database, await Revocations.open(database), names))
        finally:
            await database.close()

    with explain_system_errors(settings):
        return asyncio.run(run())


def validate_scopes(
    supplied: Iterable[str] | None, config: Path | None, *, for_policies: bool = False
) -> tuple[str, ...]:
    """Return the supplied scopes, or the default ones. Raises `CommandError` for one that neither the gateway nor a
    module of the settings defines.

    `for_policies` also accepts custom scopes, such as `team:release`, that only policies of the organisation use.
    """
    scopes = tuple(supplied or DEFAULT_SCOPES)
    unknown = sorted(set(scopes) - SCOPES)
    if for_policies:
        unknown = [scope for scope in unknown if ":" not in scope or scope.startswith(_GATEWAY_PREFIXES)]
    if unknown:
        known = SCOPES | _module_scopes(config)
        if unknown := [scope for scope in unknown if scope not in known]:
            raise CommandError(f"unknown scope {unknown[0]} (known: {', '.join(sorted(known))})", code=2)
    return scopes


def _module_scopes(config: Path | None) -> frozenset[str]:
    from gateway.wiring.backends import module_scopes

    settings = read_settings_leniently(config)
    add_module_paths(settings)
    return frozenset(module_scopes(settings))
