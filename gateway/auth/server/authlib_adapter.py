"""Bridge from Authlib's threads to the gateway's stores, which run on the event loop."""

import asyncio
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.auth.embedded_issuer import EmbeddedIssuer, OAuthGrant, new_family
from gateway.auth.jwt import InvalidToken, parse_unverified, verify_signature
from gateway.auth.revocations import Revocations
from gateway.auth.server.client_assertions import ClientAssertions
from gateway.auth.server.client_documents import ClientDocuments
from gateway.auth.server.clients import RegisteredClient, RegisteredClients
from gateway.auth.server.codes import AuthorizationCode, AuthorizationCodes
from gateway.auth.server.protocols import ApprovedRequest, AuthorizationRequest
from gateway.auth.server.refresh_tokens import RefreshRejected, RefreshTokens
from gateway.auth.tokens import ProtectedResources
from gateway.auth.users import User, Users
from gateway.contract import Json
from gateway.contract.caller import APPROVE

T = TypeVar("T")

_TIMEOUT_SECONDS: Final = 30.0
_REVOCATION_SECONDS: Final = 3660.0

AuditListener = Callable[[str, str, str, str], None]
"""Receives an audit event: event name, tenant, principal, client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthlibAdapter:
    """Implements `gateway.auth.server.protocols.AuthlibQueries`. Create it on the event loop that it uses."""

    loop: asyncio.AbstractEventLoop
    clients: RegisteredClients
    documents: ClientDocuments | None
    """Client metadata documents; None if they are disabled."""
    codes: AuthorizationCodes
    refresh_tokens: RefreshTokens
    users: Users
    assertions: ClientAssertions
    issuer: EmbeddedIssuer
    resources: ProtectedResources
    revocations: Revocations
    default_scopes: tuple[str, ...]
    all_scopes: Container[str]
    """Every scope that a client may request."""
    on_event: AuditListener
    first_party_clients: Mapping[str, RegisteredClient] = field(default_factory=dict[str, RegisteredClient])
    """Clients of the gateway itself, such as the console, by id."""

    # ---- clients

    def find_client(self, client_id: str) -> RegisteredClient | None:
        """Return a client. Reads cached documents only; `prefetch_clients` fetches them beforehand."""
        if (first_party := self.first_party_clients.get(client_id)) is not None:
            return first_party
        if client_id.startswith("https://"):
            return None if self.documents is None else self.documents.cached(client_id)
        return self._wait(self.clients.find(client_id))

    async def prefetch_clients(self, form: Mapping[str, str], address: str) -> None:
        """Fetch the metadata documents of the clients in a form that came from `address`.

        Raises `Fault(RATE_LIMITED)` if too many fetches are in progress.
        """
        if self.documents is None:
            return
        for client_id in {form.get("client_id"), self.assertions.unverified_client_id(form)}:
            if client_id is not None and client_id.startswith("https://"):
                await self.documents(client_id, address)

    def check_secret(self, client: RegisteredClient, secret: str) -> bool:
        return self.clients.check_secret(client, secret)

    def authenticate_assertion(self, form: Mapping[str, str]) -> RegisteredClient | None:
        client_id = self.assertions.unverified_client_id(form)
        client = None if client_id is None else self.find_client(client_id)
        if client is None or not self._wait(self.assertions.verify(client, form["client_assertion"])):
            return None
        return client

    # ---- scopes and resources

    def allowed_scopes(self, client: RegisteredClient, requested: str | None) -> str:
        """Return the requested scopes that the client may have; the default scopes if none remain."""
        permitted = frozenset(client.scopes) if client.service or client.first_party else self.all_scopes
        # Only the console, where a person decides, may approve calls on a user's behalf.
        withheld = () if client.first_party else (APPROVE,)
        scopes = [scope for scope in (requested or "").split() if scope in permitted and scope not in withheld]
        return " ".join(dict.fromkeys(scopes or [scope for scope in self.default_scopes if scope in permitted]))

    def resolve_resource(self, requested: Sequence[str]) -> str | None:
        if not requested:
            return self.resources.url()
        if len(requested) != 1:
            return None
        # Some clients add a trailing slash to the endpoint's URL.
        url = requested[0].removesuffix("/")
        return url if self.resources.endpoint(url) else None

    # ---- codes and tokens

    def save_code(self, request: AuthorizationRequest, client: RegisteredClient, approved: ApprovedRequest) -> str:
        user = (approved.tenant, approved.subject)
        return self._wait(
            self.codes.create(
                user, client.id, request.redirect_uri, approved.scopes, request.resource, request.challenge
            )
        )

    def redeem_code(self, code: str, client: RegisteredClient) -> AuthorizationCode | None:
        found, replayed = self._wait(self.codes.redeem(code, client.id))
        if replayed is not None:
            self._wait(self.refresh_tokens.revoke_family(replayed))
        return found

    def code_grant(self, code: AuthorizationCode) -> OAuthGrant | None:
        user = self._wait(self.users.find(code.tenant, code.subject))
        return None if user is None else _user_grant(user, code)

    def issue_tokens(self, grant: OAuthGrant, *, refreshable: bool) -> Json:
        answer = self._token_response(grant)
        if refreshable:
            answer["refresh_token"] = self._wait(self.refresh_tokens.create(grant))
        return answer

    def refresh(self, token: str, client: RegisteredClient, resource: str | None) -> Json | None:
        answer = self._wait(self.refresh_tokens.rotate(token, client.id, resource, self._refresh_response))
        if not isinstance(answer, RefreshRejected):
            return answer
        if answer.replayed is not None:
            tenant, subject, of = answer.replayed
            self.on_event("oauth/refresh_replayed", tenant, f"{tenant}/user:{subject}", of)
        return None

    def service_grant(self, client: RegisteredClient, scopes: str, resource: str) -> OAuthGrant:
        return OAuthGrant(
            tenant=client.tenant,
            subject=client.service,
            kind="service",
            groups=frozenset(),
            scopes=frozenset(scopes.split()),
            client=client.id,
            resource=resource,
            family=new_family(),
        )

    def revoke(self, token: str, client: RegisteredClient) -> None:
        self._wait(self._revoke(token, client))

    async def _revoke(self, token: str, client: RegisteredClient) -> None:
        """Revoke the whole family of a refresh token, or a single access token."""
        if (known := await self.refresh_tokens.find_family(token)) is not None:
            if known[1] == client.id:
                await self.refresh_tokens.revoke_family(known[0])
            return
        try:
            unverified = parse_unverified(token)
            key = await self.issuer.key(unverified.kid)
            claims = {} if key is None else verify_signature(unverified, key, self.issuer.algorithms)
        except InvalidToken:
            return
        if claims.get("client_id") == client.id and claims.get("iss") == self.issuer.name:
            await self.revocations.add("token", str(claims["jti"]), _REVOCATION_SECONDS)

    async def _refresh_response(self, connection: AsyncConnection, row: Row[Any]) -> Json | None:
        user = await self.users.find_in_transaction(connection, row.tenant, row.subject)
        grant = None if user is None else _user_grant(user, row)
        return None if grant is None else self._token_response(grant)

    def _token_response(self, grant: OAuthGrant) -> Json:
        return {
            "access_token": self.issuer.mint(grant),
            "token_type": "Bearer",
            "expires_in": self.issuer.token_ttl,
            "scope": " ".join(sorted(grant.scopes)),
        }

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_TIMEOUT_SECONDS)


def _user_grant(user: User, issued: AuthorizationCode | Row[Any]) -> OAuthGrant | None:
    """Build the grant of a code or refresh token with the user's current scopes; None if no scope remains."""
    scopes = frozenset(str(issued.scopes).split()) & user.scopes
    if not scopes:
        return None
    return OAuthGrant(
        tenant=user.tenant,
        subject=user.subject,
        kind="user",
        groups=user.groups,
        scopes=scopes,
        client=issued.client,
        resource=issued.resource,
        family=issued.family,
    )
