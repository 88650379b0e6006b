"""What Authlib's core asks of the house, answered from its thread by the event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import Row

from gateway.auth.embedded_issuer import EmbeddedIssuer, OAuthGrant, new_family
from gateway.auth.jwt import InvalidToken, peek, verified
from gateway.auth.revocations import Revocations
from gateway.auth.server.client_assertions import ClientAssertions
from gateway.auth.server.client_documents import ClientDocuments
from gateway.auth.server.clients import RegisteredClient, RegisteredClients
from gateway.auth.server.codes import AuthorizationCode, AuthorizationCodes
from gateway.auth.server.protocols import ApprovedRequest, AuthorizationRequest
from gateway.auth.server.refresh_tokens import RefreshRejected, RefreshTokens
from gateway.auth.tokens import ProtectedResources
from gateway.auth.users import Users
from gateway.contract import Json

T = TypeVar("T")

_PATIENCE: Final = 30.0
_TOKEN_REVOKED_FOR: Final = 3660.0

Told = Callable[[str, str, str, str], None]
"""An event for the audit log: what, tenant, principal, client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthlibAdapter:
    """`gateway.auth.server.protocols.Ask`. Made once, on the loop that it asks."""

    loop: asyncio.AbstractEventLoop
    clients: RegisteredClients
    documents: ClientDocuments | None
    """Where clients are described whose id is an address."""
    codes: AuthorizationCodes
    refresh_tokens: RefreshTokens
    users: Users
    assertions: ClientAssertions
    embedded: EmbeddedIssuer
    resources: ProtectedResources
    revocations: Revocations
    everyday: tuple[str, ...]
    known: frozenset[str]
    """Every scope there is."""
    told: Told
    own: Mapping[str, RegisteredClient] = field(default_factory=dict[str, RegisteredClient])
    """The gateway's own pages, by id."""

    # ---- clients

    def client(self, client_id: str) -> RegisteredClient | None:
        """Nothing is fetched for it: a document counts once somebody has met its client."""
        if (own := self.own.get(client_id)) is not None:
            return own
        if client_id.startswith("https://"):
            return None if self.documents is None else self.documents.known(client_id)
        return self._wait(self.clients.find(client_id))

    async def meet(self, form: Mapping[str, str], visitor: str) -> None:
        """Have the documents of the clients that are named here, for a `visitor` from that address.
        Raises `Fault(RATE_LIMITED)` when too many are being fetched."""
        if self.documents is None:
            return
        for client_id in {form.get("client_id"), self.assertions.named(form)}:
            if client_id is not None and client_id.startswith("https://"):
                await self.documents(client_id, visitor)

    def secret_is(self, client: RegisteredClient, secret: str) -> bool:
        return self.clients.secret_is(client, secret)

    def assertion(self, form: Mapping[str, str]) -> RegisteredClient | None:
        named = self.assertions.named(form)
        found = None if named is None else self.client(named)
        if found is None or not self._wait(self.assertions.holds(found, form["client_assertion"])):
            return None
        return found

    # ---- what may be asked for

    def scopes(self, client: RegisteredClient, wanted: str | None) -> str:
        """What is left of what was asked; the everyday scopes where nothing is."""
        most = frozenset(client.scopes) if client.service or client.own else self.known
        asked = [scope for scope in (wanted or "").split() if scope in most]
        return " ".join(dict.fromkeys(asked or [scope for scope in self.everyday if scope in most]))

    def resource(self, given: Sequence[str]) -> str | None:
        if not given:
            return self.resources.url()
        if len(given) != 1:
            return None
        # Some clients write the address of the endpoint with a slash at its end.
        url = given[0].removesuffix("/")
        return url if self.resources.endpoint(url) else None

    # ---- codes and tokens

    def save_code(self, asked: AuthorizationRequest, client: RegisteredClient, approved: ApprovedRequest) -> str:
        who = (approved.tenant, approved.subject)
        return self._wait(
            self.codes.put(who, client.id, asked.redirect_uri, approved.scopes, asked.resource, asked.challenge)
        )

    def redeem(self, code: str, client: RegisteredClient) -> AuthorizationCode | None:
        found, replayed = self._wait(self.codes.redeem(code, client.id))
        if replayed is not None:
            self._wait(self.refresh_tokens.end(replayed))
        return found

    def grant(self, code: AuthorizationCode) -> OAuthGrant | None:
        return self._wait(self._grant(code.tenant, code.subject, code.client, code.scopes, code.resource, code.family))

    def tokens(self, grant: OAuthGrant, *, refreshable: bool) -> Json:
        answer = self._answer(grant)
        if refreshable:
            answer["refresh_token"] = self._wait(self.refresh_tokens.first(grant))
        return answer

    def refresh(self, token: str, client: RegisteredClient, resource: str | None) -> Json | None:
        answer = self._wait(self.refresh_tokens.rotate(token, client.id, resource, self._minted))
        if not isinstance(answer, RefreshRejected):
            return answer
        if answer.replayed is not None:
            tenant, subject, of = answer.replayed
            self.told("oauth/refresh_replayed", tenant, f"{tenant}/user:{subject}", of)
        return None

    def service(self, client: RegisteredClient, scopes: str, resource: str) -> OAuthGrant:
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
        """A refresh token ends its family; an access token ends alone."""
        if (known := await self.refresh_tokens.family(token)) is not None:
            if known[1] == client.id:
                await self.refresh_tokens.end(known[0])
            return
        try:
            said = peek(token)
            key = await self.embedded.key(said.kid)
            claims = {} if key is None else verified(said, key, self.embedded.algorithms)
        except InvalidToken:
            return
        if claims.get("client_id") == client.id and claims.get("iss") == self.embedded.name:
            await self.revocations.add("token", str(claims["jti"]), _TOKEN_REVOKED_FOR)

    async def _minted(self, row: Row[Any]) -> Json | None:
        grant = await self._grant(row.tenant, row.subject, row.client, row.scopes, row.resource, row.family)
        return None if grant is None else self._answer(grant)

    async def _grant(
        self, tenant: str, subject: str, client: str, scopes: str, resource: str, family: str
    ) -> OAuthGrant | None:
        """With what the user may do and belongs to now; None when there is no such user any more."""
        user = await self.users.find(tenant, subject)
        left = frozenset(scopes.split()) & user.scopes if user else frozenset[str]()
        if user is None or not left:
            return None
        return OAuthGrant(
            tenant=tenant,
            subject=subject,
            kind="user",
            groups=user.groups,
            scopes=left,
            client=client,
            resource=resource,
            family=family,
        )

    def _answer(self, grant: OAuthGrant) -> Json:
        return {
            "access_token": self.embedded.mint(grant),
            "token_type": "Bearer",
            "expires_in": self.embedded.lasts,
            "scope": " ".join(sorted(grant.scopes)),
        }

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_PATIENCE)
