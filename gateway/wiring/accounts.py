"""Builds the accounts of users at remote servers: the vault, the credentials of each backend, pages and API."""

import asyncio
import base64
import binascii
import logging
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from gateway.accounts.access import AccountBackends, BackendAccounts
from gateway.accounts.authorization import ClientSettings, RemoteAuthorization
from gateway.accounts.connect import Connections
from gateway.accounts.credentials import KeyHeader, ProofKeys
from gateway.accounts.grants import ID_JAG, ID_TOKEN, AssertionGrant, ExchangedTokens, TokenExchange
from gateway.accounts.store import Account, AccountStore
from gateway.accounts.tokens import AccountTokens
from gateway.accounts.vault import KEY_BYTES, MasterKeys, Vault
from gateway.auth.client_key import ClientKey
from gateway.auth.dpop import DpopKey
from gateway.contract import Caller
from gateway.edge.mcp_endpoint import Authenticate
from gateway.errors import Fault, Kind
from gateway.outbound import create_client
from gateway.outbound.oauth import ClientAuthentication, Proof, Token
from gateway.settings import Settings, UrlBackend
from gateway.settings.accounts import AccountExchange, AccountIdentityAssertion, AccountOAuth, VaultSettings
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.upstream.account_access import AccountAccess, AccountRequired
from gateway.upstream.health import LoadError
from gateway.upstream.http.transport import load_tls
from gateway.wiring.identity import ACCOUNTS_CLIENT_ID, Identity
from gateway.wiring.outbound import outbound_route
from gateway.wiring.sealed_cookies import SealedCookies

if TYPE_CHECKING:
    from fastapi import APIRouter

log = logging.getLogger("gatehouse.accounts")

COMMAND_SECONDS: Final = 30.0
TOKEN_SECONDS: Final = 10.0
"""Limit of a token request; shorter than a refresh lease."""
PROOF_KEYS: Final = ProofKeys(DpopKey.generate, DpopKey.load)


def load_master_keys(vault: VaultSettings, secrets: Path) -> MasterKeys:
    """Read the master key from where the settings say. Raises `Fault(UNAVAILABLE)`."""
    former = [_parse_key(path.read_text("utf-8")) for path in vault.former_key_files]
    if vault.key_command:
        return MasterKeys(_run_key_command(vault.key_command), former)
    if vault.key is not None:
        return MasterKeys(_parse_key(vault.key.get_secret_value()), former)
    return MasterKeys(load_secret(secrets, "vault"), former)


def _run_key_command(command: tuple[str, ...]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMMAND_SECONDS, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as exc:
        # The output is not shown: it may contain the key.
        raise Fault(Kind.UNAVAILABLE, "vault.key_command failed; the vault stays closed.") from exc
    return _parse_key(done.stdout.decode("ascii", "replace"))


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/") + "==", validate=False)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise Fault(Kind.UNAVAILABLE, f"A master key of the vault must be {KEY_BYTES} bytes in Base64.")
    return key


class AccountsWiring:
    """The accounts of one gateway. `open_backend` serves the backends; `routers` serve users."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        identity: Identity,
        seal: SealedCookies,
        *,
        public_url: str,
        worker: str,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._seal = seal
        self._public_url = public_url
        self._worker = worker
        self._route = outbound_route(settings)
        keys = load_master_keys(settings.vault, settings.data_dir / "secrets")
        self.store = AccountStore(database, Vault(database, keys))
        self.backends = AccountBackends(self.store)
        self.connections = Connections(
            self.backends, self.store, seal, PROOF_KEYS, secure=public_url.startswith("https://")
        )
        self._clients: list[httpx.AsyncClient] = []

    def open_backend(self, namespace: str, entry: UrlBackend) -> AccountAccess | None:
        """The accounts of a backend; None if it has none. Raises `LoadError`."""
        if entry.account is None:
            return None
        http = create_client(
            allow_private=entry.allow_private,
            timeout=TOKEN_SECONDS,
            route=self._route,
            verify=load_tls(namespace, self._route, entry.ca_file),
        )
        self._clients.append(http)
        account = entry.account
        if account.exchange is not None:
            return self._exchanged(namespace, entry, account.exchange, http)
        if account.id_jag is not None:
            return self._asserted(namespace, entry, account.id_jag, http)
        authorization = None
        if account.oauth is not None:
            client = _client_settings(namespace, account.oauth)
            authorization = RemoteAuthorization(
                namespace, entry.url, client, http, self.store, public_url=self._public_url
            )
        tokens = AccountTokens(
            namespace,
            self.store,
            authorization.refresh if authorization is not None else _no_refresh,
            partial(_require, namespace),
            worker=self._worker,
            origin=_origin(entry.url),
            keys=PROOF_KEYS,
            header=KeyHeader(account.key.header, account.key.template) if account.key is not None else KeyHeader(),
        )
        accounts = BackendAccounts(
            namespace,
            "oauth" if account.oauth is not None else "key",
            tokens,
            self.store,
            seal=self._seal,
            public_url=self._public_url,
            authorization=authorization,
            help=account.key.help if account.key is not None else "",
            host=urlsplit(entry.url).hostname or namespace,
        )
        self.backends.add(accounts)
        return accounts

    def routers(
        self,
        authenticate: Authenticate,
        may_use: Callable[[Caller, str], bool],
        is_authorized: Callable[[Caller], Awaitable[bool]],
    ) -> "list[APIRouter]":
        """The pages and the API for users. `may_use` tells whether a caller's tenant has a backend."""
        # Imported here: see `DeferredApp`.
        from gateway.accounts.routes import AccountRoutes
        from gateway.console.session import ConsoleSignIn
        from gateway.edge.api.accounts import accounts_router
        from gateway.wiring.console import sign_in_authority

        identity, limiter = self._identity, self._identity.ip_rate_limiter
        sign_in = ConsoleSignIn(
            authority=sign_in_authority(self._settings, self._public_url, identity, ACCOUNTS_CLIENT_ID),
            anonymous=identity.anonymous,
            cookie_seal=self._seal,
            verify_token=identity.credentials.verify,
            is_valid=is_authorized,
            redirect_uri=f"{self._public_url}/accounts/signed-in",
            resource=f"{self._public_url}/mcp",
            scopes=None,
            cookie="gatehouse-accounts",
        )
        pages = AccountRoutes(
            self.connections,
            self.backends,
            sign_in,
            self._seal,
            public_url=self._public_url,
            may_use=may_use,
            gate=limiter.gate("accounts", self._settings.auth.authorize_rate),
        )

        def usable(caller: Caller) -> list[tuple[str, str, str]]:
            return [(each.name, each.host, each.kind) for each in self.backends.all() if may_use(caller, each.name)]

        def link(caller: Caller, name: str) -> str:
            return self.connections.backend(name).link_for(caller)

        api = accounts_router(
            authenticate,
            limiter.gate("accounts api", self._settings.limits.api),
            self.connections,
            usable,
            link,
        )
        return [pages.router(), api]

    def keep_only(self, settings: Settings) -> None:
        """Drop the accounts of backends that are no longer served, or no longer have accounts."""
        entries = {
            name: each for name, each in settings.backends.items() if isinstance(each, UrlBackend) and each.enabled
        }
        self.backends.keep_only({name: each for name, each in entries.items() if each.account is not None})

    async def close(self) -> None:
        await self.backends.flush()
        await asyncio.gather(*(http.aclose() for http in self._clients))

    def _exchanged(
        self, namespace: str, entry: UrlBackend, exchange: AccountExchange, http: httpx.AsyncClient
    ) -> ExchangedTokens:
        client = None
        if exchange.client_id is not None:
            client = _authentication(namespace, exchange.client_id, exchange)
        parameters = TokenExchange(
            client=client,
            token_url=exchange.token_url,
            issuer=exchange.issuer,
            audience=exchange.audience,
            resource=entry.url if exchange.resource is None else exchange.resource or None,
            scope=exchange.scope,
            actor=partial(_read_token, exchange.actor_token_file) if exchange.actor_token_file is not None else None,
        )
        return ExchangedTokens(namespace, http, self._subject(exchange.subject_token_file), parameters)

    def _asserted(
        self, namespace: str, entry: UrlBackend, assertion: AccountIdentityAssertion, http: httpx.AsyncClient
    ) -> ExchangedTokens:
        secret, resource = assertion.provider_client_secret, assertion.resource or entry.url
        parameters = TokenExchange(
            client=ClientAuthentication(
                client_id=assertion.provider_client_id,
                secret=secret.get_secret_value if secret is not None else None,
                method="basic" if secret is not None else "none",
            ),
            issuer=assertion.provider,
            subject_type=ID_TOKEN,
            requested_type=ID_JAG,
            audience=assertion.issuer,
            resource=resource,
            scope=assertion.scope,
        )
        grant = AssertionGrant(
            client=_authentication(namespace, assertion.client_id, assertion),
            issuer=assertion.issuer,
            resource=resource,
            scope=assertion.scope,
        )
        return ExchangedTokens(namespace, http, self._subject(assertion.subject_token_file), parameters, grant)

    def _subject(self, file: Path | None) -> Callable[[str], Awaitable[str | None]]:
        if file is None:
            self._identity.keep_tokens()
            return self._identity.token_of

        async def read(owner: str) -> str | None:
            return await asyncio.to_thread(_read_token, file)

        return read


def _client_settings(namespace: str, oauth: AccountOAuth) -> ClientSettings:
    assertion = None
    if oauth.client_key is not None:
        assertion = load_client_key(
            namespace, "account.oauth", oauth.client_id or "", oauth.client_key.get_secret_value()
        )
    return ClientSettings(
        issuer=oauth.issuer,
        client_id=oauth.client_id,
        secret=oauth.client_secret.get_secret_value if oauth.client_secret is not None else None,
        assertion=assertion.sign_assertion if assertion is not None else None,
        scopes=oauth.scopes,
        use_proofs=oauth.dpop,
    )


def _authentication(
    namespace: str, client_id: str, section: AccountExchange | AccountIdentityAssertion
) -> ClientAuthentication:
    kind = "exchange" if isinstance(section, AccountExchange) else "id_jag"
    if section.client_key is not None:
        key = load_client_key(namespace, f"account.{kind}", client_id, section.client_key.get_secret_value())
        return ClientAuthentication(client_id=client_id, assertion=key.sign_assertion)
    secret = section.client_secret
    return ClientAuthentication(
        client_id=client_id,
        secret=secret.get_secret_value if secret is not None else None,
        method="basic" if secret is not None else "none",
    )


def load_client_key(namespace: str, section: str, client_id: str, key: str) -> ClientKey:
    try:
        return ClientKey(client_id, key)
    except ValueError as exc:
        # The cause is dropped: it could quote the key.
        raise LoadError(f"backends.{namespace}.{section}.client_key: {exc}") from None


def _read_token(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError as exc:
        raise Fault(Kind.UNAVAILABLE, "The file of an identity token cannot be read.") from exc


def _require(namespace: str, owner: str, was_connected: bool) -> Fault:
    return AccountRequired(namespace, "reconnect" if was_connected else "missing")


async def _no_refresh(account: Account, proof: Proof | None) -> Token:
    raise Fault(Kind.INTERNAL, "A personal key is never refreshed.")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
