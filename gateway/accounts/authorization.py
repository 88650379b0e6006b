"""Authorization at a remote server: discovery (RFC 9728, RFC 8414), registration of the gateway, and token requests.

Endpoints and client are stored with the account and are not discovered again: a refresh token never goes to an endpoint
that the server names later.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx

from gateway.accounts.store import Account, AccountStore, Secret
from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.outbound.oauth import (
    ClientAuthentication,
    Method,
    Proof,
    ServerMetadata,
    Token,
    fetch_metadata,
    read_object,
    request_token,
    secret_method,
    send_form,
)

DISCOVERY_SECONDS: Final = 600.0
_METADATA: Final = "/.well-known/oauth-protected-resource"
_RESOURCE_METADATA: Final = re.compile(r'resource_metadata="([^"\\]{1,2000})"')
_SCOPE: Final = re.compile(r'scope="([^"\\]{1,2000})"')
_OFFLINE: Final = "offline_access"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The gateway's client at the server's authorization server, as far as the operator configured it."""

    issuer: str | None = None
    client_id: str | None = None
    secret: Callable[[], str] | None = None
    assertion: Callable[[str], str] | None = None
    scopes: tuple[str, ...] = ()
    use_proofs: bool = True
    """Whether tokens are bound to a key (DPoP) if the server supports it."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The authorization server of a remote server."""

    metadata: ServerMetadata
    resource: str
    scopes: tuple[str, ...]
    """Scopes that the remote server asks for."""


class RemoteAuthorization:
    """The authorization server of one backend."""

    def __init__(
        self,
        backend: str,
        url: str,
        settings: ClientSettings,
        http: httpx.AsyncClient,
        store: AccountStore,
        *,
        public_url: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._url = url
        self._settings = settings
        self._http = http
        self._store = store
        self._public_url = public_url
        self._clock = clock
        self._discovered: tuple[Discovered, float] | None = None
        self.redirect_uri = f"{public_url}/accounts/callback/{backend}"

    @property
    def host(self) -> str:
        return urlsplit(self._url).hostname or self._backend

    async def discover(self) -> Discovered:
        """Find the authorization server. Raises `Fault(UNAVAILABLE)`."""
        if self._discovered is not None and self._clock() < self._discovered[1]:
            return self._discovered[0]
        document, scopes = await self._fetch_resource_metadata()
        servers: Any = document.get("authorization_servers")
        named = [each for each in servers if isinstance(each, str)] if isinstance(servers, list) else []  # pyright: ignore[reportUnknownVariableType]  # JSON
        issuer = self._settings.issuer or (named[0] if named else _origin(self._url))
        if (
            self._settings.issuer is not None
            and named
            and self._settings.issuer.rstrip("/") not in [each.rstrip("/") for each in named]
        ):
            raise Fault(Kind.UNAVAILABLE, f"{self._backend} no longer uses the configured authorization server.")
        metadata = await fetch_metadata(self._http, issuer)
        self._check(metadata)
        resource = str(document.get("resource") or self._url)
        found = Discovered(metadata, resource, scopes)
        self._discovered = (found, self._clock() + DISCOVERY_SECONDS)
        return found

    def scopes_for(self, found: Discovered, additional: Sequence[str] = ()) -> tuple[str, ...]:
        """The scopes to ask for: those of the settings, else those of the server; and a refresh token if possible."""
        scopes = [*(self._settings.scopes or found.scopes), *additional]
        if _OFFLINE in found.metadata.scopes:
            scopes.append(_OFFLINE)
        return tuple(dict.fromkeys(scopes))

    def wants_proofs(self, found: Discovered) -> bool:
        return self._settings.use_proofs and "ES256" in found.metadata.dpop_algorithms

    async def client(self, metadata: ServerMetadata) -> ClientAuthentication:
        """The gateway's client there: configured, identified by its document, or registered."""
        settings = self._settings
        if settings.client_id is not None:
            method: Method = secret_method(metadata.methods) if settings.secret is not None else "none"
            return ClientAuthentication(
                client_id=settings.client_id, secret=settings.secret, assertion=settings.assertion, method=method
            )
        if metadata.has_client_documents and self._public_url.startswith("https://"):
            return ClientAuthentication(client_id=f"{self._public_url}/accounts/client.json", method="none")
        known = await self._store.find_client(self._backend, metadata.issuer, self.redirect_uri)
        client_id, secret, sent_by = known if known is not None else await self._register(metadata)
        return ClientAuthentication(
            client_id=client_id,
            secret=None if secret is None else lambda: secret.value,
            method="post" if sent_by == "post" else "basic" if sent_by == "basic" else "none",
        )

    async def exchange_code(
        self, client: ClientAuthentication, metadata: ServerMetadata, form: Json, proof: Proof | None
    ) -> Token:
        fields = {"grant_type": "authorization_code", "redirect_uri": self.redirect_uri, **form}
        return await request_token(
            self._http, metadata.token_endpoint, fields, client, audience=metadata.issuer, proof=proof
        )

    async def refresh(self, account: Account, proof: Proof | None) -> Token:
        """`gateway.accounts.tokens.AccountRefresh`."""
        assert account.refresh is not None
        form = {"grant_type": "refresh_token", "refresh_token": account.refresh.value}
        if account.client.get("resource"):
            form["resource"] = account.client["resource"]
        client = await self._client_of(account)
        url: str = account.client["token_endpoint"]
        return await request_token(self._http, url, form, client, audience=account.issuer, proof=proof)

    async def revoke(self, account: Account, tokens: Sequence[tuple[str, str]]) -> bool:
        """Revoke tokens, each with its type hint (RFC 7009). False if the server has no endpoint for it, or fails."""
        url = account.client.get("revocation_endpoint")
        if not url:
            return False
        client, revoked = await self._client_of(account), True
        for token, hint in tokens:
            form = {"token": token, "token_type_hint": hint}
            try:
                response = await send_form(self._http, url, form, client, audience=account.issuer, headers={})
            except Fault:
                return False
            revoked = revoked and response.status_code == 200
        return revoked

    async def _client_of(self, account: Account) -> ClientAuthentication:
        """The client that an account was connected with."""
        client_id, method = str(account.client["client_id"]), account.client["method"]
        settings = self._settings
        if client_id == settings.client_id:
            return ClientAuthentication(
                client_id=client_id, secret=settings.secret, assertion=settings.assertion, method=method
            )
        known = await self._store.find_client(self._backend, account.issuer, self.redirect_uri)
        secret = known[1] if known is not None and known[0] == client_id else None
        return ClientAuthentication(
            client_id=client_id, secret=None if secret is None else lambda: secret.value, method=method
        )

    async def _register(self, metadata: ServerMetadata) -> tuple[str, Secret | None, str]:
        """Register the gateway (RFC 7591)."""
        if not metadata.registration_endpoint:
            raise Fault(
                Kind.UNAVAILABLE,
                f"{metadata.issuer} registers no clients by itself. Register Gatehouse there with the redirect URI"
                f" {self.redirect_uri}, and set backends.{self._backend}.account.oauth.client_id.",
                retryable=False,
            )
        wanted = "none" if "none" in metadata.methods else secret_auth_method(metadata.methods)
        body: Json = {**client_metadata(self._public_url, [self.redirect_uri]), "token_endpoint_auth_method": wanted}
        response = await self._http.post(metadata.registration_endpoint, json=body)
        made = read_object(response)
        client_id, secret = made.get("client_id"), made.get("client_secret")
        if response.status_code not in (200, 201) or not isinstance(client_id, str):
            raise Fault(Kind.UNAVAILABLE, f"{metadata.issuer} refused to register the gateway.", retryable=False)
        granted = str(made.get("token_endpoint_auth_method") or wanted)
        if not isinstance(secret, str):
            secret, method = None, "none"
        else:
            method = "post" if granted == "client_secret_post" else "basic"
        await self._store.put_client(self._backend, metadata.issuer, self.redirect_uri, client_id, secret, method)
        return client_id, Secret(secret) if secret is not None else None, method

    async def _fetch_resource_metadata(self) -> tuple[Json, tuple[str, ...]]:
        """The protected resource metadata, and the scopes that the server asks for."""
        challenge = await self._challenge()
        found = _RESOURCE_METADATA.search(challenge)
        urls = [found[1]] if found is not None else []
        for url in dict.fromkeys((*urls, *_metadata_urls(self._url))):
            response = await self._http.get(url, headers={"accept": "application/json"})
            document = read_object(response)
            if response.status_code != 200 or not document:
                continue
            # RFC 9728 section 3.3: a document of another resource must not be used.
            if not _covers(str(document.get("resource", "")), self._url):
                raise Fault(Kind.UNAVAILABLE, f"The metadata of {self._backend} are those of another resource.")
            asked = _SCOPE.search(challenge)
            listed: Any = document.get("scopes_supported")
            scopes = asked[1].split() if asked else [str(each) for each in listed or ()]
            return document, tuple(scopes)
        return {}, ()  # servers of 2025-03-26: the authorization server is at the origin

    async def _challenge(self) -> str:
        """The challenge with which the server answers an unauthenticated request."""
        response = await self._http.get(self._url, headers={"accept": "text/event-stream, application/json"})
        return response.headers.get("www-authenticate", "") if response.status_code == 401 else ""

    def _check(self, metadata: ServerMetadata) -> None:
        if not metadata.authorization_endpoint:
            raise Fault(Kind.UNAVAILABLE, f"{metadata.issuer} has no authorization endpoint.")
        challenges = metadata.challenge_methods
        if (challenges is None and self._settings.client_id is None) or (challenges and "S256" not in challenges):
            raise Fault(Kind.UNAVAILABLE, f"{metadata.issuer} does not support PKCE with S256, which is required.")


def client_metadata(public_url: str, redirect_uris: Sequence[str]) -> Json:
    """How the gateway describes itself to authorization servers."""
    return {
        "client_name": "Gatehouse",
        "client_uri": public_url,
        "redirect_uris": list(redirect_uris),
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": "native" if all(map(_is_loopback, redirect_uris)) else "web",
    }


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def secret_auth_method(methods: tuple[str, ...]) -> str:
    return "client_secret_post" if secret_method(methods) == "post" else "client_secret_basic"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _metadata_urls(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, f"{_METADATA}{path}", "", ""))
    yield urlunsplit((parts.scheme, parts.netloc, _METADATA, "", ""))


def _covers(resource: str, url: str) -> bool:
    """Whether a resource identifier stands for this URL: the same, or a parent path on the same origin."""
    if _origin(resource) != _origin(url):
        return False
    parent, path = urlsplit(resource).path.rstrip("/"), urlsplit(url).path.rstrip("/")
    return path == parent or path.startswith(f"{parent}/")
