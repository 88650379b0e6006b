"""Who may call, composed: keys and tokens, where clients get them, and what ends with them."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request

from gateway.auth.api_keys import ApiKeys
from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.credentials import Credentials, key_id
from gateway.auth.embedded_issuer import EmbeddedIssuer
from gateway.auth.external_issuer import ClaimMapping, ExternalIssuer
from gateway.auth.introspection import TokenIntrospection
from gateway.auth.jwks import MAX_BYTES as KEYS_BYTES
from gateway.auth.jwks import IssuerKeys
from gateway.auth.revocations import Revocations
from gateway.auth.server.authlib_adapter import AuthlibAdapter
from gateway.auth.server.authlib_core import AuthlibServer
from gateway.auth.server.authorization_server import AuthorizationServer, document, encoded, openid
from gateway.auth.server.client_assertions import ClientAssertions
from gateway.auth.server.client_documents import MAX_BYTES, SECONDS, ClientDocuments
from gateway.auth.server.clients import RegisteredClient, RegisteredClients
from gateway.auth.server.codes import AuthorizationCodes
from gateway.auth.server.pages import CsrfTokens
from gateway.auth.server.refresh_tokens import RefreshTokens
from gateway.auth.server.signin import SignIn
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.thread_pool import ThreadPool
from gateway.auth.tokens import LEEWAY, AccessTokens, ProtectedResources, TokenIssuer
from gateway.auth.users import Users
from gateway.contract import Caller
from gateway.contract.caller import ADMIN, SCOPES
from gateway.edge.authentication import BearerAuthenticator, OAuthChallenge, PlainChallenge
from gateway.edge.client_address import client_address, within
from gateway.edge.ip_rate_limit import IpRateLimiter
from gateway.edge.mcp_endpoint import Authenticate, Known
from gateway.edge.oauth_routes import OAuthRates, metadata_router, oauth_router
from gateway.edge.stream_expiry import StreamExpiry
from gateway.errors import Fault, Kind
from gateway.outbound import client as outbound_client
from gateway.outbound import look_up
from gateway.settings import Settings, is_loopback
from gateway.state.database import Database
from gateway.state.secrets import load_secret
from gateway.state.tenants import Tenant
from gateway.wiring.limits import counted_routes, failed_sign_ins

if TYPE_CHECKING:
    from gateway.state.redis_windows import RedisWindows

log = logging.getLogger("gatehouse.identity")

CONSOLE: Final = "gatehouse-console"
"""The OAuth client that the operator's page is."""
OWNER: Final = ("default", "owner")
"""Who signs in with the code from the console, where only this machine is served."""


class Identity:
    """Opened once by the composition root. `authenticate` is what every door asks; `routers` are the plain routes."""

    def __init__(
        self, settings: Settings, database: Database, public_url: str, windows: "RedisWindows | None" = None
    ) -> None:
        self._settings = settings
        self._database = database
        self._public_url = public_url
        self._secrets: Path = settings.data_dir / "secrets"
        self._exit = AsyncExitStack()
        self.local = is_loopback(settings.server.host) and is_loopback(urlsplit(public_url).hostname or "")
        self.keys = ApiKeys(database, load_secret(self._secrets, "pepper"))
        self.owner = f"{OWNER[0]}/user:{OWNER[1]}" if self.local and settings.auth.mode == "embedded" else None
        """The principal who owns the machine, where only this one is served."""
        self.tenures = StreamExpiry()
        self.routers: list[APIRouter] = []
        self.challenge: OAuthChallenge | None = None
        self._windows = windows
        self.turnstile = IpRateLimiter(self._address, counted_routes(windows))

    @classmethod
    async def open(
        cls,
        settings: Settings,
        database: Database,
        public_url: str,
        served: Callable[[str], bool],
        windows: "RedisWindows | None" = None,
    ) -> "Identity":
        """`served` says which endpoints there are; `windows` count for all processes."""
        identity = cls(settings, database, public_url, windows)
        await identity._build(served)
        return identity

    async def _build(self, served: Callable[[str], bool]) -> None:
        settings = self._settings
        self.revocations = await Revocations.open(self._database)
        resources = ProtectedResources(self._public_url)
        issuers: dict[str, TokenIssuer] = {}
        if settings.auth.mode == "embedded":
            self.signing = await SigningKeys.open(self._database, load_secret(self._secrets, "signing"))
            self.embedded = EmbeddedIssuer(
                self._public_url, resources, self.signing, settings.auth.access_token_seconds
            )
            issuers[self.embedded.name] = self.embedded
            self.users = Users(self._database, self.revocations)
            self.browsers = BrowserSessions(self._database)
            if self.local and not await self.users.exists(*OWNER):
                await self.users.put(*OWNER, None, SCOPES)
            self.routers.append(self._authorization_server(resources, served))
        opaque = None
        if settings.auth.mode == "external":
            opaque = self._external(resources, issuers)
        tokens = AccessTokens(issuers, self.revocations, opaque) if issuers else None
        user = self.users.exists if settings.auth.mode == "embedded" else None
        self.credentials = Credentials(self.keys, tokens, self.revocations, user)
        if issuers:
            self.challenge = OAuthChallenge(self._public_url, settings.auth.scopes, served)
            self.routers.append(metadata_router(self._public_url, [*issuers], settings.auth.scopes, served))
        self._bearer = BearerAuthenticator(self.credentials.verify, leeway=LEEWAY, key_id=key_id)
        await self.credentials.on_revoke(self._bearer.forget)
        self.unauthenticated = (self.challenge or PlainChallenge()).unauthenticated
        self.known, self.authenticate = self._let_anyone_in() if settings.auth.mode == "none" else self._ask()

    def watch(
        self, good: Callable[[Caller], Awaitable[bool]], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> Callable[[], None]:
        """What to call when something was revoked or a tenant changed: open streams that rest on it end."""
        return lambda: spawn(self.tenures.review(good))

    def admit(self, tenant: Callable[[str], Tenant | None]) -> Authenticate:
        """`authenticate` for doors that no policy stands behind: nobody of a suspended tenant passes."""
        authenticate = self.authenticate

        async def admitted(headers: Mapping[str, str], address: str) -> Caller:
            caller = await authenticate(headers, address)
            of = tenant(caller.tenant)
            if of is None or of.suspended:
                raise Fault(Kind.DENIED, "This tenant is suspended.")
            return caller

        return admitted

    async def good(self, caller: Caller) -> bool:
        return self._settings.auth.mode == "none" or await self.credentials.good(caller)

    def on_close(self, work: Callable[[], Awaitable[None]]) -> None:
        self._exit.push_async_callback(work)

    async def close(self) -> None:
        await self.keys.close()
        await self._exit.aclose()

    async def sign_in_code(self) -> str | None:
        """A new one-time code, where only this machine is served and so whoever sees the console is its owner."""
        if self._settings.auth.mode != "embedded" or not self.local:
            return None
        return await self.browsers.new_code(OWNER)

    def _authorization_server(self, resources: ProtectedResources, served: Callable[[str], bool]) -> APIRouter:
        auth, pepper = self._settings.auth, load_secret(self._secrets, "pepper")
        by_document = not self.local if auth.client_documents is None else auth.client_documents
        clients = RegisteredClients(self._database, pepper, self.revocations)
        own = console_client(self._settings.server.operators_url(self._public_url))
        desk = AuthlibAdapter(
            loop=asyncio.get_running_loop(),
            clients=clients,
            documents=self._documents() if by_document else None,
            codes=AuthorizationCodes(self._database),
            refresh_tokens=RefreshTokens(self._database, self.revocations),
            users=self.users,
            assertions=ClientAssertions(
                self._database, frozenset((self._public_url, f"{self._public_url}/oauth/token"))
            ),
            embedded=self.embedded,
            resources=resources,
            revocations=self.revocations,
            everyday=auth.scopes,
            known=SCOPES,
            told=_told,
            own={CONSOLE: own},
        )
        self.provider = provider = AuthorizationServer(
            public_url=self._public_url,
            local=self.local,
            core=AuthlibServer(desk, f"{self._public_url}/oauth/token"),
            threads=self._threads("oauth", 4, 64),
            meet=desk.meet,
            clients=clients,
            users=self.users,
            browsers=self.browsers,
            sign_in=SignIn(self.users, self.browsers, failed_sign_ins(self._windows), local=self.local),
            forms=CsrfTokens(hmac.digest(pepper, b"forms", "sha256"), secure=self._public_url.startswith("https://")),
            redirects=auth.redirects,
            own=own.redirect_uris,
        )
        described = document(self._public_url, SCOPES, documents=by_document)
        # Clients of older revisions take the endpoint's own path for the server's.
        aliases = dict.fromkeys(("/mcp", urlsplit(self._public_url).path or "/mcp"))
        rates = OAuthRates(auth.authorize_rate, auth.token_rate, auth.registration_rate)
        documents = (described, openid(described))
        published, turnstile = self.signing.published, self.turnstile
        return oauth_router(provider, encoded, documents, published, self._address, turnstile, rates, [*aliases])

    def _external(
        self, resources: ProtectedResources, issuers: dict[str, TokenIssuer]
    ) -> Callable[[str], Awaitable[Caller | None]] | None:
        """Fills `issuers`; gives what opaque tokens are asked with, where an issuer has it."""
        asked: list[TokenIntrospection] = []
        for entry in self._settings.auth.issuers:
            http = outbound_client(allow_private=entry.allow_private, max_bytes=KEYS_BYTES, timeout=5.0)
            self._exit.push_async_callback(http.aclose)
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
                asked.append(TokenIntrospection(http, opaque.url, client, issuer))
        return partial(_any, asked) if asked else None

    def _documents(self) -> ClientDocuments:
        auth = self._settings.auth
        private = frozenset(auth.client_document_private_hosts)
        # Whoever writes the address may run the servers of its name too, and those need not hurry.
        names = partial(self._threads("names", 4, 16), look_up)
        http = outbound_client(allow_private=private, max_bytes=MAX_BYTES, timeout=SECONDS, resolver=names)
        self._exit.push_async_callback(http.aclose)
        return ClientDocuments(http, auth.client_document_domains)

    def _threads(self, name: str, most: int, waiting: int) -> ThreadPool:
        threads = ThreadPool(name, most, waiting)
        self._exit.push_async_callback(threads.close)
        return threads

    def _address(self, request: Request) -> str:
        peer = request.client.host if request.client else ""
        trusted = partial(within, self._settings.server.trusted_proxies)
        return client_address(peer, request.headers.get("x-forwarded-for"), trusted)

    def _let_anyone_in(self) -> tuple[Known, Authenticate]:
        anyone = Caller("default", "anonymous", scopes=SCOPES - {ADMIN})

        async def let_in(headers: Mapping[str, str], address: str) -> Caller:
            return anyone

        return lambda headers: anyone, let_in

    def _ask(self) -> tuple[Known, Authenticate]:
        bearer, trusted = self._bearer, partial(within, self._settings.server.trusted_proxies)

        def known(headers: Mapping[str, str]) -> Caller | None:
            return bearer.known(_given(headers))

        async def authenticate(headers: Mapping[str, str], address: str) -> Caller:
            client = client_address(address, headers.get("x-forwarded-for"), trusted)
            return await bearer.caller(_given(headers), client)

        return known, authenticate


def _given(headers: Mapping[str, str]) -> str | None:
    given = headers.get("authorization")
    if given is None and (key := headers.get("x-api-key")) is not None:
        return f"Bearer {key}"
    return given


def console_client(url: str) -> RegisteredClient:
    return RegisteredClient(
        id=CONSOLE,
        name="The console",
        redirect_uris=(f"{url}/console/signed-in",),
        auth_method="none",
        grant_types=("authorization_code",),
        scopes=(ADMIN,),
        own=True,
    )


async def _any(asked: Sequence[TokenIntrospection], text: str) -> Caller | None:
    for introspection in asked:
        if (caller := await introspection(text)) is not None:
            return caller
    return None


def _told(event: str, tenant: str, principal: str, client: str) -> None:
    log.warning("%s: everything of this sign-in was revoked (%s, client %s)", event, principal, client)
