"""`gatehouse user`: make, list and remove users in the database itself."""

import getpass
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.auth.browser import Browsers
from gateway.auth.users import User, Users
from gateway.cli.books import Books, with_books
from gateway.cli.failure import Failure
from gateway.cli.scopes import checked_scopes
from gateway.contract.scopes import SCOPES
from gateway.parts.identity import OWNER
from gateway.settings import is_loopback

_LONGEST: Final = 4096


def add(
    name: str, tenant: str, groups: Sequence[str], scopes: Sequence[str] | None, from_stdin: bool, config: Path | None
) -> None:
    most = checked_scopes(scopes)
    password = sys.stdin.readline(_LONGEST).rstrip("\r\n") if from_stdin else _asked()

    async def put(books: Books) -> None:
        books.check_tenant(tenant)
        await _users(books).put(tenant, name, password, most, groups)

    with_books(config, put)


def _asked() -> str:
    if not sys.stdin.isatty():
        raise Failure("there is nobody to ask for a password; give it with --password-stdin", code=2)
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise Failure("these are two different passwords")
    return password


def list_users(tenant: str | None, config: Path | None, as_json: bool) -> None:
    async def read(books: Books) -> list[User]:
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


def remove(name: str, tenant: str, config: Path | None) -> None:
    async def end(books: Books) -> bool:
        return await _users(books).remove(tenant, name)

    if not with_books(config, end):
        raise Failure(f"no user of {tenant} is named {name}; `gatehouse user list` shows them")


def code(config: Path | None) -> None:
    async def make(books: Books) -> str:
        if not is_loopback(books.settings.server.host):
            raise Failure("codes are for a gateway that serves this machine only; use `gatehouse user add`")
        if not await _users(books).exists(*OWNER):
            await _users(books).put(*OWNER, None, SCOPES)
        return await Browsers(books.database).new_code(OWNER)

    print(with_books(config, make))


def _users(books: Books) -> Users:
    return Users(books.database, books.revocations)
