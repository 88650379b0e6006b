"""`gatehouse key`: creates, lists and revokes API keys in the database. A running gateway notices immediately."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from rich.markup import escape
from rich.table import Table

from gateway.auth.api_keys import ApiKeyInfo, ApiKeys
from gateway.cli.failure import CommandError, explain_system_errors
from gateway.cli.identity_db import open_database, validate_scopes
from gateway.cli.load_settings import read_settings_leniently
from gateway.cli.output import open_output
from gateway.settings import Settings
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenants

T = TypeVar("T")

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The API keys and the names of the known tenants."""

    keys: ApiKeys
    tenants: frozenset[str]

    def check_tenant(self, name: str) -> None:
        if name not in self.tenants:
            known = ", ".join(sorted(self.tenants))
            raise CommandError(
                f"there is no tenant {name} (known: {known}); create it with `gatehouse tenant add {name}`"
            )


def create(
    tenant: str,
    subject: str | None,
    service: str | None,
    scopes: Iterable[str] | None,
    expires: str | None,
    label: str,
    endpoint: str,
    config: Path | None,
    as_json: bool,
    groups: Iterable[str] | None = None,
) -> None:
    name, kind = _principal(subject, service)
    granted = validate_scopes(scopes, config, for_policies=True)
    expires_at = None if expires is None else time.time() + parse_duration(expires, "--expires")

    async def create_key(ring: KeyRing) -> tuple[str, ApiKeyInfo]:
        ring.check_tenant(tenant)
        return await ring.keys.create(
            tenant,
            name,
            kind=kind,
            scopes=granted,
            groups=groups or (),
            expires=expires_at,
            label=label,
            endpoint=endpoint,
        )

    text, info = _with_ring(config, create_key)
    print(json.dumps({"key": text, **_as_object(info)}) if as_json else text)


def _principal(subject: str | None, service: str | None) -> tuple[str, Literal["user", "service"]]:
    if subject and not service:
        return subject, "user"
    if service and not subject:
        return service, "service"
    raise CommandError("give either --subject for a user or --service for a service account", code=2)


def parse_duration(text: str, option: str) -> int:
    """Parse a duration such as 30d into seconds. Raises `CommandError` that names the option."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", text)
    if not found:
        raise CommandError(f"{option} must be a number and a unit (s, m, h, d or w), such as 30d", code=2)
    return int(found[1]) * _UNITS[found[2]]


def list_keys(tenant: str | None, config: Path | None, as_json: bool) -> None:
    async def read(ring: KeyRing) -> list[ApiKeyInfo]:
        if tenant is not None:
            ring.check_tenant(tenant)
        return await ring.keys.list(tenant)

    infos = _with_ring(config, read)
    if as_json:
        print(json.dumps([_as_object(info) for info in infos], indent=2))
    else:
        _show(infos)


def revoke(key_id: str, config: Path | None) -> None:
    async def revoke_key(ring: KeyRing) -> bool:
        return await ring.keys.revoke(key_id)

    if not _with_ring(config, revoke_key):
        raise CommandError(f"there is no active key {key_id}; `gatehouse key list` lists the keys")


def _with_ring(config: Path | None, work: Callable[[KeyRing], Awaitable[T]]) -> T:
    settings = read_settings_leniently(config)

    async def run() -> T:
        async with _ring(settings) as ring:
            return await work(ring)

    with explain_system_errors(settings):
        return asyncio.run(run())


@asynccontextmanager
async def _ring(settings: Settings) -> AsyncGenerator[KeyRing]:
    database = await open_database(settings)
    try:
        tenants = await Tenants.open(database)
        pepper = load_secret(settings.data_dir / "secrets", "pepper")
        names = frozenset(settings.tenants) | {tenant.name for tenant in tenants.all()}
        yield KeyRing(ApiKeys(database, pepper), names)
    finally:
        await database.close()


def _as_object(info: ApiKeyInfo) -> dict[str, Any]:
    return asdict(info) | {"scopes": sorted(info.scopes), "groups": sorted(info.groups)}


def _show(infos: list[ApiKeyInfo]) -> None:
    columns = ("id", "tenant", "principal", "scopes", "endpoint", "expires", "state", "label")
    table = Table(*columns, box=None, pad_edge=False)
    table.columns[3].min_width = max((len(scope) for info in infos for scope in info.scopes), default=0)
    for info in infos:
        owner, scopes = f"{info.kind} {info.subject}", " ".join(sorted(info.scopes))
        row = (info.id, info.tenant, owner, scopes, info.endpoint, _date(info.expires), _state(info), info.label)
        table.add_row(*map(escape, row))
    open_output().print(table)


def _state(info: ApiKeyInfo) -> str:
    if info.revoked is not None:
        return "revoked"
    return "expired" if info.expires is not None and info.expires <= time.time() else "active"


def _date(timestamp: float | None) -> str:
    return "never" if timestamp is None else datetime.fromtimestamp(timestamp, UTC).date().isoformat()
