"""`gatehouse client`: OAuth clients of services, made by an operator."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.auth.server.clients import Client, Clients, public_keys
from gateway.cli.books import Books, with_books
from gateway.cli.failure import Failure
from gateway.cli.scopes import checked_scopes
from gateway.contract import Json


def add(
    service: str, tenant: str, scopes: Sequence[str] | None, jwks: Path | None, config: Path | None, as_json: bool
) -> None:
    most = checked_scopes(scopes)
    keys = None if jwks is None else _public(jwks)

    async def make(books: Books) -> tuple[str, str]:
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
        raise Failure(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise Failure(f"{path} is not a JWK set") from exc


def list_clients(config: Path | None, as_json: bool) -> None:
    async def read(books: Books) -> list[Client]:
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


def _as_object(client: Client) -> dict[str, Any]:
    return {name: value for name, value in asdict(client).items() if name not in ("secret", "jwks")}


def remove(client_id: str, config: Path | None) -> None:
    async def end(books: Books) -> bool:
        return await _clients(books).remove(client_id)

    if not with_books(config, end):
        raise Failure(f"no client has the id {client_id}; `gatehouse client list` shows them")


def _clients(books: Books) -> Clients:
    return Clients(books.database, books.secret("pepper"), books.revocations)
