"""Checks of the database, its migrations and signing keys, of Redis, and of the clocks of these servers."""

from collections.abc import AsyncIterator
from typing import Final

from gateway.auth.signing_keys import can_decrypt
from gateway.cli.doctor.finding import DoctorFinding, failed, passed, warning
from gateway.errors import Fault
from gateway.settings import Settings
from gateway.state.readonly import DatabaseState, DatabaseUnusable, bus_clock_offset, inspect_file, inspect_server
from gateway.state.secrets import load_secret

MAX_CLOCK_OFFSET: Final = 30.0
"""Seconds that clocks may differ; token validation allows about the same."""


async def database(settings: Settings) -> AsyncIterator[DoctorFinding]:
    url = settings.database.url
    part = "database" if url is None else "database.url"
    try:
        state = inspect_file(settings.data_dir) if url is None else await inspect_server(url.get_secret_value())
    except DatabaseUnusable as exc:
        yield failed(part, str(exc), _database_fix(settings, str(exc)))
        return
    except Fault as fault:
        yield failed(part, fault.message.rstrip("."), "start the newer version of Gatehouse, or restore a backup")
        return
    if state is None:
        yield passed(part, "SQLite, will be created at the first start")
        return
    yield _migrations(part, state)
    if state.is_superuser:
        yield warning(part, "the login is a superuser", "create a separate login for the gateway; see docs/scaling.md")
    if url is not None:
        yield clock("PostgreSQL", state.clock_offset)
    if (found := _signing_keys(settings, state)) is not None:
        yield found


def _migrations(part: str, state: DatabaseState) -> DoctorFinding:
    if not state.pending:
        return passed(part, "intact, all migrations applied")
    return warning(
        part,
        f"{len(state.pending)} pending migrations, the first is {state.pending[0]}",
        "run gatehouse db upgrade, or start the gateway, which applies them",
    )


def _database_fix(settings: Settings, error: str) -> str:
    if settings.database.url is None:
        return f"stop the gateway and restore {settings.data_dir.absolute()}/gatehouse.db from your backup"
    if "InvalidPassword" in error or "InvalidAuthorization" in error:
        return "correct user and password in database.url"
    if "InvalidCatalogName" in error:
        return "create the database, or correct the name at the end of database.url"
    return "check that PostgreSQL runs and is reachable from this machine, or correct database.url"


def _signing_keys(settings: Settings, state: DatabaseState) -> DoctorFinding | None:
    """Check that the signing keys in the database can be decrypted with the secret in the data folder."""
    if state.signing_key is None or settings.auth.mode != "embedded":
        return None
    folder = settings.data_dir / "secrets"
    fix = f"restore {folder.absolute()}/signing from the backup of the same installation"
    if not (folder / "signing").exists():
        return failed("signing keys", "the secret that encrypts them is missing", fix)
    try:
        matches = can_decrypt(load_secret(folder, "signing"), *state.signing_key)
    except Fault:
        return None  # reported by the check of the secrets
    if matches:
        return passed("signing keys", "match secrets/signing")
    return failed("signing keys", "are encrypted with another secret than secrets/signing", fix)


async def bus(settings: Settings) -> AsyncIterator[DoctorFinding]:
    if (url := settings.bus.url) is None:
        return
    try:
        offset = await bus_clock_offset(url.get_secret_value())
    except DatabaseUnusable as exc:
        unauthenticated = "Authentication" in str(exc) or "NOAUTH" in str(exc)
        yield failed(
            "bus.url",
            str(exc),
            "correct user and password in bus.url"
            if unauthenticated
            else "check that Redis or Valkey runs and is reachable from this machine, or correct bus.url",
        )
        return
    yield passed("bus.url", "Redis is reachable")
    yield clock("Redis", offset)


def clock(source: str, offset: float) -> DoctorFinding:
    if abs(offset) <= MAX_CLOCK_OFFSET:
        return passed("clock", f"{source} agrees with this machine")
    message = f"{source} is {abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} this machine"
    return failed("clock", message, "enable NTP on both machines (timedatectl set-ntp true)")
