"""Requests, clients and codes as the types that Authlib expects."""

# pyright: reportIncompatibleMethodOverride=false, reportOptionalMemberAccess=false, reportUnknownMemberType=false

from collections.abc import Mapping, Sequence

from authlib.oauth2.rfc6749 import ClientMixin, OAuth2Payload, OAuth2Request

from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.codes import AuthorizationCode
from gateway.auth.server.protocols import AuthlibQueries, AuthorizationRequest
from gateway.auth.server.redirect_uris import matches

Pairs = Sequence[tuple[str, str]]


class OAuthPayload(OAuth2Payload):
    def __init__(self, pairs: Pairs) -> None:
        self._lists: dict[str, list[str]] = {}
        for name, value in pairs:
            self._lists.setdefault(name, []).append(value)

    @property
    def data(self) -> dict[str, str]:
        return {name: values[0] for name, values in self._lists.items()}

    @property
    def datalist(self) -> dict[str, list[str]]:
        return self._lists


class OAuthRequest(OAuth2Request):
    """A request with the public URL instead of the socket's; Authlib rejects plain http."""

    def __init__(self, method: str, uri: str, pairs: Pairs, headers: Mapping[str, str]) -> None:
        # Except on loopback, a proxy in front of the gateway terminates TLS.
        super().__init__(method, uri.replace("http://", "https://", 1), headers=dict(headers))
        self.payload = OAuthPayload(pairs)
        self.authorization: AuthorizationRequest | None = None

    @property
    def form(self) -> dict[str, str]:
        return self.payload.data

    @property
    def args(self) -> dict[str, str]:
        return self.payload.data


class AuthlibClient(ClientMixin):
    """A registered client with Authlib's client interface."""

    def __init__(self, queries: AuthlibQueries, client: RegisteredClient) -> None:
        self._queries = queries
        self.client = client

    def get_client_id(self) -> str:
        return self.client.id

    def get_default_redirect_uri(self) -> str | None:
        # Only if there is exactly one.
        return self.client.redirect_uris[0] if len(self.client.redirect_uris) == 1 else None

    def get_allowed_scope(self, scope: str | None) -> str:
        return self._queries.allowed_scopes(self.client, scope)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        if self.client.first_party:
            # No consent page is shown, so the URI must match exactly, including the port.
            return redirect_uri in self.client.redirect_uris
        return matches(self.client.redirect_uris, redirect_uri)

    def check_client_secret(self, client_secret: str) -> bool:
        return self._queries.check_secret(self.client, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        known = self.client.auth_method
        # A client may send its secret in the header or in the form, whichever it registered.
        return method == known or {method, known} == {"client_secret_basic", "client_secret_post"}

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code" and self.check_grant_type("authorization_code")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.client.grant_types


class AuthlibCode:
    """An authorization code with Authlib's code interface."""

    code_challenge_method = "S256"

    def __init__(self, code: AuthorizationCode) -> None:
        self.code = code
        self.code_challenge = code.challenge

    def get_redirect_uri(self) -> str:
        return self.code.redirect_uri

    def get_scope(self) -> str:
        return self.code.scopes
