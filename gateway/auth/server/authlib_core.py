"""OAuth flows on top of Authlib: authorization code with PKCE, refresh, client credentials and revocation.

The overrides make Authlib stricter: S256 is required, a token has one audience, a code is redeemed once, and unknown
scopes are ignored. Authlib is synchronous and untyped: it runs in threads and reads the stores through
`AuthlibQueries`.
"""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportAttributeAccessIssue=false
# pyright: reportDeprecated=false, reportIncompatibleMethodOverride=false, reportOptionalMemberAccess=false
# pyright: reportReturnType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import re
from collections.abc import Mapping
from typing import Any, Final

from authlib.common.urls import add_params_to_uri
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    grants,
)
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge

from gateway.auth.embedded_issuer import OAuthGrant
from gateway.auth.server.authlib_types import AuthlibClient, AuthlibCode, OAuthRequest, Pairs
from gateway.auth.server.clients import RegisteredClient
from gateway.auth.server.codes import AuthorizationCode
from gateway.auth.server.protocols import ApprovedRequest, AuthlibQueries, AuthorizationRequest
from gateway.contract import Json

AUTH_METHODS: Final = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
CONFIDENTIAL_AUTH_METHODS: Final = AUTH_METHODS[1:]
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class InvalidTarget(OAuth2Error):
    error = "invalid_target"
    description = "The resource does not belong to this server."


def require_resource(request: OAuthRequest, queries: AuthlibQueries) -> str:
    found = queries.resolve_resource(request.payload.datalist.get("resource", []))
    if found is None:
        raise InvalidTarget
    return found


class S256Challenge(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: Any) -> None:
        super().validate_code_challenge(grant, redirect_uri)
        data = grant.request.payload.data
        if data.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(data.get("code_challenge", "")):
            raise InvalidRequestError("A code_challenge with the method S256 is required.")


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS

    def validate_authorization_request(self) -> str:
        request = self.request
        if request.authorization is not None:
            # Authlib validates again when the user has decided; the client need not be read twice.
            return request.authorization.redirect_uri
        redirect_uri = super().validate_authorization_request()
        try:
            resource = require_resource(request, self.server.queries)
        except InvalidTarget as error:
            error.redirect_uri = redirect_uri
            raise
        request.authorization = AuthorizationRequest(
            request.scope, resource, request.payload.data["code_challenge"], redirect_uri
        )
        return redirect_uri

    def create_authorization_response(self, redirect_uri: str, grant_user: ApprovedRequest | None) -> Any:
        if grant_user is not None and not grant_user.scopes:
            raise InvalidScopeError("The user has none of the requested scopes.", redirect_uri=redirect_uri)
        return super().create_authorization_response(redirect_uri, grant_user)

    def generate_authorization_code(self) -> str:
        return self.server.queries.save_code(self.request.authorization, self.request.client.client, self.request.user)

    def save_authorization_code(self, code: str, request: Any) -> None:
        """Do nothing: `generate_authorization_code` has saved the code."""

    def query_authorization_code(self, code: str, client: AuthlibClient) -> AuthlibCode | None:
        # Redeem before a token is issued: Authlib deletes the code last, after concurrent requests have read it.
        found = self.server.queries.redeem_code(code, client.client)
        return None if found is None else AuthlibCode(found)

    def delete_authorization_code(self, authorization_code: Any) -> None: ...

    def validate_token_request(self) -> None:
        super().validate_token_request()
        code: AuthorizationCode = self.request.authorization_code.code
        requested = self.request.payload.datalist.get("resource", [])
        if requested and self.server.queries.resolve_resource(requested) != code.resource:
            raise InvalidTarget

    def authenticate_user(self, authorization_code: AuthlibCode) -> OAuthGrant | None:
        return self.server.queries.code_grant(authorization_code.code)

    def generate_token(self, user: Any = None, include_refresh_token: bool = True, **more: Any) -> Json:
        return self.server.queries.issue_tokens(user, refreshable=include_refresh_token)


class RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS

    def validate_token_request(self) -> None:
        self.request.client = self._validate_request_client()
        if not self.request.form.get("refresh_token"):
            raise InvalidRequestError("Missing 'refresh_token' in request.")

    def create_token_response(self) -> Any:
        # One transaction reads the old token and writes the new one; Authlib's own steps are separate.
        requested = self.request.payload.datalist.get("resource", [])
        resource = require_resource(self.request, self.server.queries) if requested else None
        token = self.server.queries.refresh(self.request.form["refresh_token"], self.request.client.client, resource)
        if token is None:
            raise InvalidGrantError
        return 200, token, self.TOKEN_RESPONSE_HEADER


class ServiceGrant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = CONFIDENTIAL_AUTH_METHODS

    def create_token_response(self) -> Any:
        queries, client = self.server.queries, self.request.client.client
        resource = require_resource(self.request, queries)
        scopes = queries.allowed_scopes(client, self.request.payload.scope)
        token = queries.issue_tokens(queries.service_grant(client, scopes, resource), refreshable=False)
        return 200, token, self.TOKEN_RESPONSE_HEADER


class TokenRevocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = AUTH_METHODS

    def authenticate_token(self, request: Any, client: AuthlibClient) -> tuple[str, AuthlibClient]:
        if not request.form.get("token"):
            raise InvalidRequestError("Missing 'token' in request.")
        return request.form["token"], client

    def revoke_token(self, token: tuple[str, AuthlibClient], request: Any) -> None:
        # The response is the same for an unknown token and for another client's (RFC 7009, 2.2).
        self.server.queries.revoke(token[0], token[1].client)


OAuthResponse = tuple[int, list[tuple[str, str]], Any]
"""Status, headers, and body as JSON value or text."""


class AuthorizationRejected(Exception):
    """An invalid authorization request.

    `message` is for the user. `response` and `redirect_uri` are set if the client is known and gets the error.
    """

    def __init__(self, message: str, response: OAuthResponse | None, redirect_uri: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.response = response
        self.redirect_uri = redirect_uri


class AuthlibServer(AuthorizationServer):
    """The OAuth flows. Call the methods in a worker thread, never on the event loop."""

    def __init__(self, queries: AuthlibQueries, uri: str) -> None:
        super().__init__()
        self.queries = queries
        self._uri = uri
        self.register_client_auth_method(
            "private_key_jwt", lambda _query, request: self._authenticate_assertion(request)
        )
        self.register_grant(CodeGrant, [S256Challenge(required=True)])
        self.register_grant(RefreshGrant)
        self.register_grant(ServiceGrant)
        self.register_endpoint(TokenRevocation)

    def build_request(self, method: str, pairs: Pairs, headers: Mapping[str, str]) -> OAuthRequest:
        return OAuthRequest(method, self._uri, pairs, {"Authorization": headers.get("authorization", "")})

    def token_response(self, request: OAuthRequest) -> OAuthResponse:
        return self.create_token_response(request)

    def revocation_response(self, request: OAuthRequest) -> OAuthResponse:
        return self.create_endpoint_response("revocation", request)

    def validate_authorization(self, request: OAuthRequest) -> tuple[RegisteredClient, AuthorizationRequest, Any]:
        """Return the client, its request, and the grant for `complete_authorization`.

        Raises `AuthorizationRejected`.
        """
        try:
            grant = self.get_consent_grant(request)
        except OAuth2Error as error:
            status, body, headers = error()
            response = self.handle_response(status, body, headers) if error.redirect_uri else None
            raise AuthorizationRejected(error.description or error.error, response, error.redirect_uri or "") from error
        return grant.request.client.client, grant.request.authorization, grant

    def complete_authorization(self, grant: Any, approved: ApprovedRequest | None) -> OAuthResponse:
        return self.create_authorization_response(grant.request, approved, grant)

    def query_client(self, client_id: str) -> AuthlibClient | None:
        found = self.queries.find_client(client_id)
        return None if found is None else AuthlibClient(self.queries, found)

    def _authenticate_assertion(self, request: OAuthRequest) -> AuthlibClient | None:
        found = self.queries.authenticate_assertion(request.form)
        return None if found is None else AuthlibClient(self.queries, found)

    def save_token(self, token: Any, request: Any) -> None:
        """Do nothing: `AuthlibQueries` has saved the token in one transaction with the token it replaces."""

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None: ...

    def create_oauth2_request(self, request: OAuthRequest) -> OAuthRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> OAuthResponse:
        return status, [(str(name), str(value)) for name, value in headers], body

    def validate_requested_scope(self, scope: str | None) -> None:
        """Accept any scope: unknown ones are ignored, because clients add their own, such as offline_access."""


def add_issuer(uri: str, issuer: str) -> str:
    return add_params_to_uri(uri, [("iss", issuer)])
