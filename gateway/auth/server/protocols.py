"""Interface between the Authlib flows and the gateway's stores, with the values that it exchanges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.auth.embedded_issuer import OAuthGrant
from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.codes import AuthorizationCode
from gateway.contract import Json


class AuthlibQueries(Protocol):
    """Queries of the OAuth flows. All methods block and are called from worker threads."""

    def find_client(self, client_id: str) -> RegisteredClient | None: ...

    def check_secret(self, client: RegisteredClient, secret: str) -> bool: ...

    def authenticate_assertion(self, form: Mapping[str, str]) -> RegisteredClient | None: ...

    def allowed_scopes(self, client: RegisteredClient, requested: str | None) -> str: ...

    def resolve_resource(self, requested: Sequence[str]) -> str | None: ...

    def save_code(
        self, request: "AuthorizationRequest", client: RegisteredClient, approved: "ApprovedRequest"
    ) -> str: ...

    def redeem_code(self, code: str, client: RegisteredClient) -> AuthorizationCode | None: ...

    def code_grant(self, code: AuthorizationCode) -> OAuthGrant | None: ...

    def issue_tokens(self, grant: OAuthGrant, *, refreshable: bool) -> Json: ...

    def refresh(self, token: str, client: RegisteredClient, resource: str | None) -> Json | None: ...

    def service_grant(self, client: RegisteredClient, scopes: str, resource: str) -> OAuthGrant: ...

    def revoke(self, token: str, client: RegisteredClient) -> None: ...


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A validated authorization request."""

    scopes: str
    resource: str
    challenge: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class ApprovedRequest:
    """The user who approved a request, and the approved scopes."""

    tenant: str
    subject: str
    scopes: str
