"""What the flows ask of the house, and the words in which they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.auth.embedded_issuer import OAuthGrant
from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.codes import AuthorizationCode
from gateway.contract import Json


class AuthlibQueries(Protocol):
    """What the flows ask of the house, from their thread."""

    def client(self, client_id: str) -> RegisteredClient | None: ...

    def secret_is(self, client: RegisteredClient, secret: str) -> bool: ...

    def assertion(self, form: Mapping[str, str]) -> RegisteredClient | None: ...

    def scopes(self, client: RegisteredClient, wanted: str | None) -> str: ...

    def resource(self, given: Sequence[str]) -> str | None: ...

    def save_code(
        self, asked: "AuthorizationRequest", client: RegisteredClient, approved: "ApprovedRequest"
    ) -> str: ...

    def redeem(self, code: str, client: RegisteredClient) -> AuthorizationCode | None: ...

    def grant(self, code: AuthorizationCode) -> OAuthGrant | None: ...

    def tokens(self, grant: OAuthGrant, *, refreshable: bool) -> Json: ...

    def refresh(self, token: str, client: RegisteredClient, resource: str | None) -> Json | None: ...

    def service(self, client: RegisteredClient, scopes: str, resource: str) -> OAuthGrant: ...

    def revoke(self, token: str, client: RegisteredClient) -> None: ...


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An authorization request that was found good."""

    scopes: str
    resource: str
    challenge: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class ApprovedRequest:
    """Who agreed, and to how much of it."""

    tenant: str
    subject: str
    scopes: str
