"""Builds authentication: API keys, token issuers, the embedded authorization server, and expiry of open streams."""

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.auth.api_keys import ApiKeys
from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.credentials import Credentials, key_id
from gateway.auth.embedded_issuer import EmbeddedIssuer
from gateway.auth.external_issuer import ClaimMapping, ExternalIssuer
from gateway.auth.introspection import TokenIntrospection
from gateway.auth.jwks import MAX_BYTES as KEYS_BYTES
from gateway.auth.jwks import IssuerKeys
from gateway.auth.revocations import Revocations
from gateway.auth.scopes import KnownScopes
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.thread_pool import ThreadPool
from gateway.auth.tokens import LEEWAY, AccessTokens, ProtectedResources, TokenIssuer
from gateway.auth.users import LOCAL_OWNER, Users
from gateway.contract import Caller, Json
from gateway.contract.caller import ADMIN, APPROVE, DEFAULT_SCOPES, SCOPES
from gateway.edge.authentication import BearerAuthenticator, OAuthChallenge, PlainChallenge
from gateway.edge.client_address import client_address, is_in_networks
from gateway.edge.mcp_endpoint import Authenticate, CachedCaller
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind
from gateway.outbound import create_client as outbound_client
from gateway.outbound import resolve_blocking
from gateway.settings import Settings, is_loopback
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenant
from gateway.wiring.limits import shared_route_limits, sign_in_failure_counter
from gateway.wiring.outbound import outbound_route

if TYPE_CHECKING:
    from fastapi import APIRouter, Request

    from gateway.auth.server.authorization_server import AuthorizationServer
    from gateway.auth.server.client_documents import ClientDocuments
    from gateway.auth.server.clients import RegisteredClient
    from gateway.edge.ip_rate_limit import IpRateLimiter
    from gateway.state.redis_windows import RedisWindows
    from gateway.wiring.providers import OpenProviders

log = logging.getLogger("gatehouse.identity")

CONSOLE_CLIENT_ID: Final = "gatehouse-console"
"""Client id of the console at the embedded authorization server."""
ACCOUNTS_CLIENT_ID: Final = "gatehouse-accounts"
"""Client id of the account pages there."""
ACCOUNT_SCOPES: Final = (*DEFAULT_SCOPES, ADMIN)
"""Scopes that the account pages ask for; none is required."""
_MAX_KEPT_TOKENS: Final = 10_000
"""Tenant and user that the one-time code of a loopback gateway signs in."""


class Identity:
    """Authentication of one gateway. `authenticate` serves every endpoint; `routers` builds the OAuth routes."""

    def __init__(
        self, settings: Settings, database: Database, public_url: str, windows: "RedisWindows | None" = None
    ) -> None:
        self._settings = settings
        self._database = database
        self._public_url = public_url
        self._secrets: Path = settings.data_dir / "secrets"
        self._is_trusted_proxy = partial(is_in_networks, settings.server.trusted_proxies)
        self._exit_stack = AsyncExitStack()
        self.local = is_loopback(settings.server.host) and is_loopback(urlsplit(public_url).hostname or "")
        self.keys = ApiKeys(database, load_secret(self._secrets, "pepper"))
        self.owner = (
            f"{LOCAL_OWNER[0]}/user:{LOCAL_OWNER[1]}" if self.local and settings.auth.mode == "embedded" else None
        )
        """The principal of the local owner; None unless the gateway listens on loopback only."""
        self.stream_expiry = StreamExpiry()
        self.challenge: OAuthChallenge | None = None
        self._windows = windows
        self._scopes = KnownScopes()
        self._anonymous = Caller("default", "anonymous", scopes=SCOPES - {ADMIN, APPROVE})
        self._kept_tokens: OrderedDict[str, tuple[str, float]] | None = None

    @classmethod
    async def open(
        cls,
        settings: Settings,
        database: Database,
        public_url: str,
        served: Callable[[str], bool],
        windows: "RedisWindows | None" = None,
    ) -> "Identity":
        """`served` says whether an endpoint exists; `windows` are rate limits shared by all processes."""
        identity = cls(settings, database, public_url, windows)
        await identity._build(served)
        return identity

    async def _build(self, served: Callable[[str], bool]) -> None:
        settings, self._served = self._settings, served
        self.revocations = await Revocations.open(self._database)
        self._resources = resources = ProtectedResources(self._public_url)
        self._issuers = issuers = dict[str, TokenIssuer]()
        if settings.auth.mode == "embedded":
            self.signing_keys = await SigningKeys.open(self._database, load_secret(self._secrets, "signing"))
            self.issuer = EmbeddedIssuer(
                self._public_url, resources, self.signing_keys, settings.auth.access_token_seconds
            )
            issuers[self.issuer.name] = self.issuer
            self.users = Users(self._database, self.revocations)
            self.browser_sessions = BrowserSessions(self._database)
            if self.local and not await self.users.exists(*LOCAL_OWNER):
                await self.users.put(*LOCAL_OWNER, None, SCOPES)
            self.providers = self._open_providers()
        opaque = None
        if settings.auth.mode == "external":
            opaque = self._open_external_issuers(resources, issuers)
        tokens = AccessTokens(issuers, self.revocations, opaque) if issuers else None
        user = self.users.is_active if settings.auth.mode == "embedded" else None
        self.credentials = Credentials(self.keys, tokens, self.revocations, user)
        if issuers:
            self.challenge = OAuthChallenge(self._public_url, settings.auth.scopes, served)
        self._bearer = BearerAuthenticator(self._verify, leeway=LEEWAY, key_id=key_id)
        self.credentials.on_revoke(self._bearer.clear)
        self.unauthenticated = (self.challenge or PlainChallenge()).unauthenticated
        self.cached_caller: CachedCaller = self._bearer.cached
        self.authenticate: Authenticate = self._authenticate
        if settings.auth.mode == "none":
            self._allow_anonymous()

    def expire_streams(
        self, is_valid: Callable[[Caller], Awaitable[bool]], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> Callable[[], None]:
        """Return a callback that ends the open streams of callers that are no longer valid."""
        return lambda: spawn(self.stream_expiry.end_invalid(is_valid))

    def authenticate_active(self, tenant: Callable[[str], Tenant | None]) -> Authenticate:
        """Return an `authenticate` that also rejects suspended tenants, for routes without a policy check."""
        authenticate = self.authenticate

        async def authenticate_and_check_tenant(headers: Mapping[str, str], address: str) -> Caller:
            caller = await authenticate(headers, address)
            found = tenant(caller.tenant)
            if found is None or found.suspended:
                raise Fault(Kind.DENIED, "This tenant is suspended. Ask an operator to resume it.")
            return caller

        return authenticate_and_check_tenant

    async def set_module_scopes(self, scopes: Mapping[str, tuple[str, str]]) -> None:
        """Accept these scopes of modules (description and namespace of each), and no others.

        The local owner, who administers the gateway, gets each of them.
        """
        self._scopes.set_modules(scopes)
        self._anonymous = replace(self._anonymous, scopes=frozenset(self._scopes) - {ADMIN, APPROVE})
        if self._settings.auth.mode != "embedded" or not self.local:
            return
        owner = await self.users.find(*LOCAL_OWNER)
        if owner is None or owner.has_password or ADMIN not in owner.scopes:
            return
        if not scopes.keys() <= owner.scopes:
            await self.users.put(*LOCAL_OWNER, None, owner.scopes | scopes.keys(), owner.groups)

    async def is_valid(self, caller: Caller) -> bool:
        return self._settings.auth.mode == "none" or await self.credentials.is_active(caller)

    @property
    def anonymous(self) -> Caller:
        """The caller of every request with `auth.mode: none`."""
        return self._anonymous

    def keep_tokens(self) -> None:
        """Keep the newest access token of each principal in memory, for `token_of`. Off unless a backend needs it."""
        if self._kept_tokens is None:
            self._kept_tokens = OrderedDict()

    async def token_of(self, principal: str) -> str | None:
        """The newest valid access token of an external issuer that this principal has used here."""
        token, expires = (self._kept_tokens or {}).get(principal, (None, 0.0))
        return token if time.time() < expires else None

    async def _verify(self, text: str) -> Caller | None:
        caller = await self.credentials.verify(text)
        if self._kept_tokens is not None and caller is not None and caller.token and caller.expires is not None:
            self._kept_tokens[caller.principal] = (text, caller.expires)
            self._kept_tokens.move_to_end(caller.principal)
            if len(self._kept_tokens) > _MAX_KEPT_TOKENS:
                self._kept_tokens.popitem(last=False)
        return caller

    def on_close(self, work: Callable[[], Awaitable[None]]) -> None:
        self._exit_stack.push_async_callback(work)

    async def close(self) -> None:
        await self.keys.close()
        await self._exit_stack.aclose()

    async def create_sign_in_code(self) -> str | None:
        """Create a one-time sign-in code for the local owner; None unless the gateway listens on loopback only."""
        if self._settings.auth.mode != "embedded" or not self.local:
            return None
        return await self.browser_sessions.new_code(LOCAL_OWNER)

    def _open_providers(self) -> "OpenProviders | None":
        if not self._settings.auth.providers:
            return None
        from gateway.wiring.providers import open_providers

        return open_providers(
            auth=self._settings.auth,
            public_url=self._public_url,
            database=self._database,
            users=self.users,
            signing_secret=load_secret(self._secrets, "signing"),
            pepper=load_secret(self._secrets, "pepper"),
            exit_stack=self._exit_stack,
            route=outbound_route(self._settings),
        )

    # ---- for the plain routes, imported and built at the first request to one of them (`DeferredApp`) ----

    @cached_property
    def ip_rate_limiter(self) -> "IpRateLimiter":
        """Rate limits of the plain routes by client address."""
        from gateway.edge.ip_rate_limit import IpRateLimiter

        return IpRateLimiter(self._address, shared_route_limits(self._windows))

    def routers(self) -> "list[APIRouter]":
        """Build the routes of OAuth and SCIM."""
        from gateway.edge.oauth_routes import metadata_router

        routers = [self._oauth_router()] if self._settings.auth.mode == "embedded" else []
        if self._settings.auth.mode == "embedded" and self.providers is not None:
            routers.append(self.providers.scim_router(self.ip_rate_limiter))
        if self._issuers:
            scopes = self._settings.auth.scopes
            routers.append(metadata_router(self._public_url, [*self._issuers], scopes, self._served))
        return routers

    @property
    def _client_documents_enabled(self) -> bool:
        enabled = self._settings.auth.client_documents
        return not self.local if enabled is None else enabled

    @cached_property
    def authorization_server(self) -> "AuthorizationServer":
        """The embedded authorization server (`auth.mode: embedded`)."""
        from gateway.auth.server.authlib_adapter import AuthlibAdapter
        from gateway.auth.server.authlib_core import AuthlibServer
        from gateway.auth.server.authorization_server import AuthorizationServer
        from gateway.auth.server.client_assertions import ClientAssertions
        from gateway.auth.server.clients import RegisteredClients
        from gateway.auth.server.codes import AuthorizationCodes
        from gateway.auth.server.pages import CsrfTokens
        from gateway.auth.server.refresh_tokens import RefreshTokens
        from gateway.auth.server.signin import SignIn

        auth, pepper = self._settings.auth, load_secret(self._secrets, "pepper")
        clients = RegisteredClients(self._database, pepper, self.revocations)
        own = console_client(self._settings.server.operators_url(self._public_url))
        accounts = accounts_client(self._public_url)
        adapter = AuthlibAdapter(
            loop=asyncio.get_running_loop(),
            clients=clients,
            documents=self._client_documents() if self._client_documents_enabled else None,
            codes=AuthorizationCodes(self._database),
            refresh_tokens=RefreshTokens(self._database, self.revocations),
            users=self.users,
            assertions=ClientAssertions(
                self._database, frozenset((self._public_url, f"{self._public_url}/oauth/token"))
            ),
            issuer=self.issuer,
            resources=self._resources,
            revocations=self.revocations,
            default_scopes=auth.scopes,
            all_scopes=self._scopes,
            on_event=_log_revocation,
            first_party_clients={CONSOLE_CLIENT_ID: own, ACCOUNTS_CLIENT_ID: accounts},
        )
        return AuthorizationServer(
            public_url=self._public_url,
            local=self.local,
            core=AuthlibServer(adapter, f"{self._public_url}/oauth/token"),
            threads=self._thread_pool("oauth", 4, 64),
            prefetch_clients=adapter.prefetch_clients,
            clients=clients,
            browsers=self.browser_sessions,
            sign_in=SignIn(
                self.users,
                self.browser_sessions,
                sign_in_failure_counter(self._windows),
                local=self.local,
                codes=self.local or self.providers is not None,
                passwords=auth.allows_passwords(),
            ),
            forms=CsrfTokens(hmac.digest(pepper, b"forms", "sha256"), secure=self._public_url.startswith("https://")),
            redirects=auth.redirects,
            first_party_redirects=(*own.redirect_uris, *accounts.redirect_uris),
            describe_scope=self._scopes.describe,
            providers=None if self.providers is None else self.providers.sign_in,
            token_owner=adapter.refresh_tokens.find_owner,
        )

    def _oauth_router(self) -> "APIRouter":
        from gateway.auth.server.authorization_server import encode_response, openid_metadata, server_metadata
        from gateway.edge.oauth_routes import OAuthRates, oauth_router

        auth, by_document = self._settings.auth, self._client_documents_enabled
        # Clients of older revisions look for the metadata below the endpoint's own path.
        aliases = dict.fromkeys(("/mcp", urlsplit(self._public_url).path or "/mcp"))
        rates = OAuthRates(auth.authorize_rate, auth.token_rate, auth.registration_rate)

        def documents() -> tuple[Json, Json]:
            # `mcp:approve` is for the console only, so clients are not invited to request it.
            offered = [scope for scope in self._scopes if scope != APPROVE]
            described = server_metadata(self._public_url, offered, documents=by_document)
            return described, openid_metadata(described)

        published, rate_limiter = self.signing_keys.public_jwks, self.ip_rate_limiter
        return oauth_router(
            self.authorization_server,
            encode_response,
            documents,
            published,
            self._address,
            rate_limiter,
            rates,
            [*aliases],
        )

    def _open_external_issuers(
        self, resources: ProtectedResources, issuers: dict[str, TokenIssuer]
    ) -> Callable[[str], Awaitable[Caller | None]] | None:
        """Add the configured issuers to `issuers`; return the introspection of opaque tokens, if any issuer has it."""
        introspections: list[TokenIntrospection] = []
        for entry in self._settings.auth.issuers:
            http = outbound_client(
                allow_private=entry.allow_private,
                max_bytes=KEYS_BYTES,
                timeout=5.0,
                route=outbound_route(self._settings),
            )
            self._exit_stack.push_async_callback(http.aclose)
            claims = ClaimMapping(
                tenant=entry.tenant,
                tenant_claim=entry.tenant_claim,
                tenants=entry.tenants,
                subject_claim=entry.subject_claim,
                groups_claim=entry.groups_claim,
                scopes_claim=entry.scopes_claim,
                scope_map=entry.scope_map,
            )
            issuer = ExternalIssuer(
                entry.issuer,
                IssuerKeys(http, entry.issuer),
                resources,
                claims,
                algorithms=frozenset(entry.algorithms),
                types=frozenset(entry.types),
                audiences=frozenset(entry.audiences),
            )
            issuers[entry.issuer] = issuer
            if (opaque := entry.introspection) is not None:
                client = (opaque.client_id, opaque.client_secret.get_secret_value())
                introspections.append(TokenIntrospection(http, opaque.url, client, issuer))
        return partial(_introspect_any, introspections) if introspections else None

    def _client_documents(self) -> "ClientDocuments":
        from gateway.auth.server.client_documents import MAX_BYTES, TIMEOUT_SECONDS, ClientDocuments

        auth = self._settings.auth
        private = frozenset(auth.client_document_private_hosts)
        # The client chooses the host name, and its name servers may be slow: resolve in a thread pool of its own.
        names = partial(self._thread_pool("names", 4, 16), resolve_blocking)
        http = outbound_client(
            allow_private=private,
            max_bytes=MAX_BYTES,
            timeout=TIMEOUT_SECONDS,
            resolver=names,
            route=outbound_route(self._settings),
        )
        self._exit_stack.push_async_callback(http.aclose)
        return ClientDocuments(http, auth.client_document_domains)

    def _thread_pool(self, name: str, max_threads: int, waiting: int) -> ThreadPool:
        threads = ThreadPool(name, max_threads, waiting)
        self._exit_stack.push_async_callback(threads.close)
        return threads

    def _address(self, request: "Request") -> str:
        peer = request.client.host if request.client else ""
        return client_address(peer, request.headers.get("x-forwarded-for"), self._is_trusted_proxy)

    def _allow_anonymous(self) -> None:
        async def authenticate(headers: Mapping[str, str], address: str) -> Caller:
            return self._anonymous

        self.cached_caller = lambda headers: self._anonymous
        self.authenticate = authenticate

    async def _authenticate(self, headers: Mapping[str, str], address: str) -> Caller:
        client = client_address(address, headers.get("x-forwarded-for"), self._is_trusted_proxy)
        return await self._bearer.authenticate(headers, client)


def console_client(url: str) -> "RegisteredClient":
    from gateway.auth.server.clients import RegisteredClient

    return RegisteredClient(
        id=CONSOLE_CLIENT_ID,
        name="The console",
        redirect_uris=(f"{url}/console/signed-in",),
        auth_method="none",
        grant_types=("authorization_code",),
        scopes=(ADMIN, APPROVE),
        first_party=True,
    )


def accounts_client(url: str) -> "RegisteredClient":
    from gateway.auth.server.clients import RegisteredClient

    return RegisteredClient(
        id=ACCOUNTS_CLIENT_ID,
        name="Your accounts",
        redirect_uris=(f"{url}/accounts/signed-in",),
        auth_method="none",
        grant_types=("authorization_code",),
        scopes=ACCOUNT_SCOPES,
        first_party=True,
    )


async def _introspect_any(introspections: Sequence[TokenIntrospection], text: str) -> Caller | None:
    for introspection in introspections:
        if (caller := await introspection(text)) is not None:
            return caller
    return None


def _log_revocation(event: str, tenant: str, principal: str, client: str) -> None:
    log.warning("identity: %s; all tokens of the sign-in are revoked (%s, client %s)", event, principal, client)
