"""Where things are kept: the database, what it was sealed with, Redis, and whether all clocks agree."""

from collections.abc import AsyncIterator
from typing import Final

from gateway.auth.signing_keys import opens
from gateway.cli.doctor.finding import DoctorFinding, bad, good, warning
from gateway.errors import Fault
from gateway.settings import Settings
from gateway.state.readonly import DatabaseState, DatabaseUnusable, look_at_bus, look_at_file, look_at_server
from gateway.state.secrets import load_secret

DRIFT: Final = 30.0
"""Seconds that two clocks may differ: tokens are allowed about as much."""


async def database(settings: Settings) -> AsyncIterator[DoctorFinding]:
    at = settings.database.url
    part = "database" if at is None else "database.url"
    try:
        seen = look_at_file(settings.data_dir) if at is None else await look_at_server(at.get_secret_value())
    except DatabaseUnusable as exc:
        yield bad(part, str(exc), _mend_database(settings, str(exc)))
        return
    except Fault as fault:
        yield bad(part, fault.message.rstrip("."), "start the newer version of Gatehouse again, or restore a backup")
        return
    if seen is None:
        yield good(part, "SQLite, will be made at the first start")
        return
    yield _age(part, seen)
    if seen.superuser:
        yield warning(part, "the login is a superuser", "give the gateway a login of its own; docs/scaling.md has it")
    if at is not None:
        yield clock("PostgreSQL", seen.ahead)
    if (found := _sealed(settings, seen)) is not None:
        yield found


def _age(part: str, seen: DatabaseState) -> DoctorFinding:
    if not seen.pending:
        return good(part, "whole, its tables up to date")
    return warning(
        part,
        f"{len(seen.pending)} migrations wait, the first is {seen.pending[0]}",
        "gatehouse db upgrade, or just start: a gateway that starts does the same",
    )


def _mend_database(settings: Settings, said: str) -> str:
    if settings.database.url is None:
        return f"stop the gateway and restore {settings.data_dir.absolute()}/gatehouse.db from your backup"
    if "InvalidPassword" in said or "InvalidAuthorization" in said:
        return "mend user and password in database.url"
    if "InvalidCatalogName" in said:
        return "CREATE DATABASE there, or mend the name at the end of database.url"
    return "see that PostgreSQL runs and that this machine may reach it; else mend host and port in database.url"


def _sealed(settings: Settings, seen: DatabaseState) -> DoctorFinding | None:
    """Whether the keys in the database and the secrets beside it belong together."""
    if seen.sealed is None or settings.auth.mode != "embedded":
        return None
    folder = settings.data_dir / "secrets"
    mend = f"restore {folder.absolute()}/signing from where the database comes from"
    if not (folder / "signing").exists():
        return bad("signing keys", "the secret that they were sealed with is missing", mend)
    try:
        fits = opens(load_secret(folder, "signing"), *seen.sealed)
    except Fault:
        return None  # told of by the secrets themselves
    if fits:
        return good("signing keys", "open with secrets/signing")
    return bad("signing keys", "were sealed with another secret than secrets/signing", mend)


async def bus(settings: Settings) -> AsyncIterator[DoctorFinding]:
    if (at := settings.bus.url) is None:
        return
    try:
        ahead = await look_at_bus(at.get_secret_value())
    except DatabaseUnusable as exc:
        wrong = "Authentication" in str(exc) or "NOAUTH" in str(exc)
        yield bad(
            "bus.url",
            str(exc),
            "mend user and password in bus.url"
            if wrong
            else "see that Redis or Valkey runs and that this machine may reach it; else mend bus.url",
        )
        return
    yield good("bus.url", "Redis answers")
    yield clock("Redis", ahead)


def clock(whose: str, ahead: float) -> DoctorFinding:
    words = f"{whose} is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine"
    if abs(ahead) <= DRIFT:
        return good("clock", f"{whose} agrees with this machine")
    return bad("clock", words, "set both by NTP (timedatectl set-ntp true): tokens and leases go by the clock")
