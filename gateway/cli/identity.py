"""Scopes as they are given to a command.

`gatehouse user`: make, list and remove users in the database itself.

`gatehouse client`: OAuth clients of services, made by an operator.

`gatehouse signing`: the keys that tokens are signed with.
"""

import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.server.clients import RegisteredClient, RegisteredClients, public_keys
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.users import User, Users
from gateway.cli.failure import CommandError
from gateway.cli.identity_db import IdentityDatabase, checked_scopes, with_books
from gateway.contract import Json
from gateway.contract.caller import SCOPES
from gateway.settings import is_loopback
from gateway.wiring.identity import OWNER

_LONGEST: Final = 4096


def add_user(
    name: str, tenant: str, groups: Sequence[str], scopes: Sequence[str] | None, from_stdin: bool, config: Path | None
) -> None:
    most = checked_scopes(scopes)
    password = sys.stdin.readline(_LONGEST).rstrip("\r\n") if from_stdin else _asked()

    async def put(books: IdentityDatabase) -> None:
        books.check_tenant(tenant)
        await _users(books).put(tenant, name, password, most, groups)

    with_books(config, put)


def _asked() -> str:
    if not sys.stdin.isatty():
        raise CommandError("there is nobody to ask for a password; give it with --password-stdin", code=2)
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise CommandError("these are two different passwords")
    return password


def list_users(tenant: str | None, config: Path | None, as_json: bool) -> None:
    async def read(books: IdentityDatabase) -> list[User]:
        if tenant is not None:
            books.check_tenant(tenant)
        return await _users(books).list(tenant)

    found = with_books(config, read)
    if as_json:
        rows = [asdict(user) | {"scopes": sorted(user.scopes), "groups": sorted(user.groups)} for user in found]
        print(json.dumps(rows, indent=2))
        return
    table = Table("tenant", "name", "groups", "scopes", "signs in with", box=None, pad_edge=False)
    for user in found:
        way = "a password" if user.has_password else "a code from the terminal"
        table.add_row(
            *map(escape, (user.tenant, user.subject, " ".join(sorted(user.groups)), " ".join(sorted(user.scopes)), way))
        )
    Console().print(table)


def remove_user(name: str, tenant: str, config: Path | None) -> None:
    async def end(books: IdentityDatabase) -> bool:
        return await _users(books).remove(tenant, name)

    if not with_books(config, end):
        raise CommandError(f"no user of {tenant} is named {name}; `gatehouse user list` shows them")


def create_sign_in_code(config: Path | None) -> None:
    async def make(books: IdentityDatabase) -> str:
        if not is_loopback(books.settings.server.host):
            raise CommandError("codes are for a gateway that serves this machine only; use `gatehouse user add`")
        if not await _users(books).exists(*OWNER):
            await _users(books).put(*OWNER, None, SCOPES)
        return await BrowserSessions(books.database).new_code(OWNER)

    print(with_books(config, make))


def _users(books: IdentityDatabase) -> Users:
    return Users(books.database, books.revocations)


def add_client(
    service: str, tenant: str, scopes: Sequence[str] | None, jwks: Path | None, config: Path | None, as_json: bool
) -> None:
    most = checked_scopes(scopes)
    keys = None if jwks is None else _public(jwks)

    async def make(books: IdentityDatabase) -> tuple[str, str]:
        books.check_tenant(tenant)
        return await _clients(books).add_service(tenant, service, most, keys)

    client_id, secret = with_books(config, make)
    if as_json:
        print(json.dumps({"client_id": client_id} | ({"client_secret": secret} if secret else {})))
    else:
        print(f"{client_id} {secret}".strip())


def _public(path: Path) -> Json:
    try:
        return public_keys(path.read_bytes())
    except OSError as exc:
        raise CommandError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise CommandError(f"{path} is not a JWK set") from exc


def list_clients(config: Path | None, as_json: bool) -> None:
    async def read(books: IdentityDatabase) -> list[RegisteredClient]:
        return await _clients(books).list()

    found = with_books(config, read)
    if as_json:
        print(json.dumps([_as_object(client) for client in found], indent=2))
        return
    table = Table("id", "name", "tenant", "service", "returns to", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.columns[0].min_width = max((len(client.id) for client in found), default=0)
    for client in found:
        row = (client.id, client.name, client.tenant, client.service, " ".join(client.redirect_uris))
        table.add_row(*map(escape, row))
    Console().print(table)


def _as_object(client: RegisteredClient) -> dict[str, Any]:
    return {name: value for name, value in asdict(client).items() if name not in ("secret", "jwks")}


def remove_client(client_id: str, config: Path | None) -> None:
    async def end(books: IdentityDatabase) -> bool:
        return await _clients(books).remove(client_id)

    if not with_books(config, end):
        raise CommandError(f"no client has the id {client_id}; `gatehouse client list` shows them")


def _clients(books: IdentityDatabase) -> RegisteredClients:
    return RegisteredClients(books.database, books.secret("pepper"), books.revocations)


def rotate(config: Path | None) -> None:
    async def turn(books: IdentityDatabase) -> str:
        return await (await SigningKeys.open(books.database, books.secret("signing"))).rotate()

    print(with_books(config, turn))
