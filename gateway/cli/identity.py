"""Implementation of `gatehouse user`, `client`, `scim` and `signing`; all of them change the database directly."""

import getpass
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.providers.federated_users import FederatedUser, federated_users
from gateway.auth.scim.tokens import ScimClient, ScimTokens
from gateway.auth.server.clients import RegisteredClient, RegisteredClients, public_keys
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.users import LOCAL_OWNER, User, Users
from gateway.cli.failure import CommandError
from gateway.cli.identity_db import IdentityDatabase, validate_scopes, with_identity_database
from gateway.cli.output import open_output
from gateway.contract import Json
from gateway.contract.caller import SCOPES
from gateway.settings import is_loopback

_MAX_PASSWORD_LENGTH: Final = 4096
_ADMIN_CODE_SECONDS: Final = 900.0


def add_user(
    name: str, tenant: str, groups: Sequence[str], scopes: Sequence[str] | None, from_stdin: bool, config: Path | None
) -> None:
    allowed = validate_scopes(scopes, config)
    password = sys.stdin.readline(_MAX_PASSWORD_LENGTH).rstrip("\r\n") if from_stdin else _prompt_password()

    async def put(identity: IdentityDatabase) -> None:
        identity.check_tenant(tenant)
        await _users(identity).put(tenant, name, password, allowed, groups)

    with_identity_database(config, put)


def _prompt_password() -> str:
    if not sys.stdin.isatty():
        raise CommandError("cannot prompt for a password without a terminal; use --password-stdin", code=2)
    password = getpass.getpass("Password: ")
    if getpass.getpass("Repeat password: ") != password:
        raise CommandError("the passwords do not match; try again")
    return password


def list_users(tenant: str | None, config: Path | None, as_json: bool) -> None:
    async def read(identity: IdentityDatabase) -> tuple[list[User], dict[tuple[str, str], FederatedUser]]:
        if tenant is not None:
            identity.check_tenant(tenant)
        users = _users(identity)
        federated = federated_users(identity.database, users, identity.secret("signing"))
        return await users.list(tenant), {user.key: user for user in await federated.list()}

    found, sources = with_identity_database(config, read)
    if as_json:
        print(json.dumps([_user_object(user, sources.get((user.tenant, user.subject))) for user in found], indent=2))
        return
    table = Table("tenant", "name", "person", "groups", "scopes", "sign-in", "status", box=None, pad_edge=False)
    for user in found:
        source = sources.get((user.tenant, user.subject))
        person = "" if source is None else source.display_name or source.email
        groups, scopes = " ".join(sorted(user.groups)), " ".join(sorted(user.scopes))
        row = (user.tenant, user.subject, person, groups, scopes, _sign_in(user, source), _status(user))
        table.add_row(*map(escape, row))
    open_output().print(table)


def _user_object(user: User, source: FederatedUser | None) -> dict[str, Any]:
    shown = {
        "tenant": user.tenant,
        "subject": user.subject,
        "scopes": sorted(user.scopes),
        "groups": sorted(user.groups),
        "has_password": user.has_password,
        "created": user.created,
        "sign_in": _sign_in(user, source),
        "status": _status(user),
    }
    if source is not None:
        shown |= {
            "provider": source.provider,
            "issuer": source.issuer,
            "external_subject": source.external_subject,
            "person": source.display_name,
            "email": source.email,
            "checked": source.checked_at,
        }
    return shown


def _sign_in(user: User, source: FederatedUser | None) -> str:
    if source is not None:
        return f"provider {source.provider}"
    return "password" if user.has_password else "code"


def _status(user: User) -> str:
    if user.suspended:
        return "suspended"
    return "active" if user.is_active(time.time()) else "refused by the provider"


def suspend_user(name: str, tenant: str, config: Path | None) -> None:
    async def suspend(identity: IdentityDatabase) -> bool:
        return await _users(identity).suspend(tenant, name)

    if not with_identity_database(config, suspend):
        raise CommandError(f"tenant {tenant} has no active user {name}; `gatehouse user list` lists the users")


def resume_user(name: str, tenant: str, config: Path | None) -> None:
    async def resume(identity: IdentityDatabase) -> bool:
        return await _users(identity).resume(tenant, name)

    if not with_identity_database(config, resume):
        raise CommandError(f"tenant {tenant} has no suspended user {name}; `gatehouse user list` lists the users")


def remove_user(name: str, tenant: str, config: Path | None) -> None:
    async def remove(identity: IdentityDatabase) -> bool:
        return await _users(identity).remove(tenant, name)

    if not with_identity_database(config, remove):
        raise CommandError(f"tenant {tenant} has no user {name}; `gatehouse user list` lists the users")


def create_sign_in_code(config: Path | None, as_json: bool) -> None:
    async def create(identity: IdentityDatabase) -> str:
        if not is_loopback(identity.settings.server.host):
            raise CommandError("sign-in codes work only if server.host is a loopback address; use `gatehouse user add`")
        if not await _users(identity).exists(*LOCAL_OWNER):
            await _users(identity).put(*LOCAL_OWNER, None, SCOPES)
        return await BrowserSessions(identity.database).new_code(LOCAL_OWNER)

    code = with_identity_database(config, create)
    print(json.dumps({"code": code}) if as_json else code)


def create_admin_code(admin: bool, config: Path | None) -> None:
    if not admin:
        raise CommandError("the code signs in an administrator; add --admin to confirm", code=2)

    async def create(identity: IdentityDatabase) -> str:
        settings = identity.settings
        if settings.auth.mode != "embedded":
            raise CommandError("sign-in codes need auth.mode embedded; use an API key with the scope mcp:admin")
        if not settings.auth.providers and not is_loopback(settings.server.host):
            raise CommandError("this gateway has no auth.providers; use `gatehouse user add` to add an administrator")
        users = _users(identity)
        if not await users.exists(*LOCAL_OWNER):
            await users.put(*LOCAL_OWNER, None, SCOPES)
        return await BrowserSessions(identity.database).new_code(LOCAL_OWNER, _ADMIN_CODE_SECONDS)

    print(with_identity_database(config, create))


def create_scim_token(tenant: str, provider: str, config: Path | None) -> None:
    async def create(identity: IdentityDatabase) -> str:
        identity.check_tenant(tenant)
        if provider not in identity.settings.auth.providers:
            known = ", ".join(identity.settings.auth.providers) or "none"
            raise CommandError(f"there is no provider {provider} (known: {known}); add it under auth.providers")
        return await _scim_tokens(identity).create(tenant, provider)

    print(with_identity_database(config, create))


def list_scim_tokens(config: Path | None, as_json: bool) -> None:
    async def read(identity: IdentityDatabase) -> list[ScimClient]:
        return await _scim_tokens(identity).list()

    found = with_identity_database(config, read)
    if as_json:
        print(json.dumps([asdict(client) for client in found], indent=2))
        return
    table = Table("tenant", "provider", "created", box=None, pad_edge=False)
    for client in found:
        created = datetime.fromtimestamp(client.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
        table.add_row(*map(escape, (client.tenant, client.provider, created)))
    open_output().print(table)


def revoke_scim_token(tenant: str, config: Path | None) -> None:
    async def revoke(identity: IdentityDatabase) -> bool:
        return await _scim_tokens(identity).revoke(tenant)

    if not with_identity_database(config, revoke):
        raise CommandError(f"tenant {tenant} has no SCIM token; `gatehouse scim list` lists them")


def _scim_tokens(identity: IdentityDatabase) -> ScimTokens:
    return ScimTokens(identity.database, identity.secret("pepper"))


def _users(identity: IdentityDatabase) -> Users:
    return Users(identity.database, identity.revocations)


def add_client(
    service: str, tenant: str, scopes: Sequence[str] | None, jwks: Path | None, config: Path | None, as_json: bool
) -> None:
    allowed = validate_scopes(scopes, config)
    keys = None if jwks is None else _read_public_keys(jwks)

    async def create(identity: IdentityDatabase) -> tuple[str, str]:
        identity.check_tenant(tenant)
        return await _clients(identity).add_service(tenant, service, allowed, keys)

    client_id, secret = with_identity_database(config, create)
    if as_json:
        print(json.dumps({"client_id": client_id} | ({"client_secret": secret} if secret else {})))
    else:
        print(f"{client_id} {secret}".strip())


def _read_public_keys(path: Path) -> Json:
    try:
        return public_keys(path.read_bytes())
    except OSError as exc:
        raise CommandError(f"cannot read {path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise CommandError(f"{path} is not a JWK set; give a file with public keys") from exc


def list_clients(config: Path | None, as_json: bool) -> None:
    async def read(identity: IdentityDatabase) -> list[RegisteredClient]:
        return await _clients(identity).list()

    found = with_identity_database(config, read)
    if as_json:
        print(json.dumps([_as_object(client) for client in found], indent=2))
        return
    table = Table("id", "name", "tenant", "service", "redirect URIs", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    table.columns[0].min_width = max((len(client.id) for client in found), default=0)
    for client in found:
        row = (client.id, client.name, client.tenant, client.service, " ".join(client.redirect_uris))
        table.add_row(*map(escape, row))
    open_output().print(table)


def _as_object(client: RegisteredClient) -> dict[str, Any]:
    return {name: value for name, value in asdict(client).items() if name not in ("secret", "jwks")}


def remove_client(client_id: str, config: Path | None) -> None:
    async def remove(identity: IdentityDatabase) -> bool:
        return await _clients(identity).remove(client_id)

    if not with_identity_database(config, remove):
        raise CommandError(f"there is no client {client_id}; `gatehouse client list` lists the clients")


def _clients(identity: IdentityDatabase) -> RegisteredClients:
    return RegisteredClients(identity.database, identity.secret("pepper"), identity.revocations)


def rotate(config: Path | None, as_json: bool) -> None:
    async def rotate_key(identity: IdentityDatabase) -> str:
        return await (await SigningKeys.open(identity.database, identity.secret("signing"))).rotate()

    key_id = with_identity_database(config, rotate_key)
    print(json.dumps({"kid": key_id}) if as_json else key_id)
