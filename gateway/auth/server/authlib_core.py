"""The grants: S256 for everybody, one audience, one use. Each override replaces what would be unsafe here.

Authlib's core, held to what we promise: no scope is ever a reason to fail, and what is saved is saved once.

Authlib is synchronous and has no types: it runs in a thread, and what it must know of the database is asked through
`Ask`.
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

METHODS: Final = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

CONFIDENTIAL: Final = METHODS[1:]

_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class InvalidTarget(OAuth2Error):
    error = "invalid_target"
    description = "This is not a resource of this server."


def one_resource(request: OAuthRequest, ask: AuthlibQueries) -> str:
    found = ask.resource(request.payload.datalist.get("resource", []))
    if found is None:
        raise InvalidTarget
    return found


class S256Challenge(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

    def validate_code_challenge(self, grant: Any, redirect_uri: Any) -> None:
        super().validate_code_challenge(grant, redirect_uri)
        data = grant.request.payload.data
        if data.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(data.get("code_challenge", "")):
            raise InvalidRequestError("A code_challenge with the method S256 is needed.")


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def validate_authorization_request(self) -> str:
        redirect_uri = super().validate_authorization_request()
        request = self.request
        try:
            resource = one_resource(request, self.server.ask)
        except InvalidTarget as error:
            error.redirect_uri = redirect_uri
            raise
        request.asked = AuthorizationRequest(
            request.scope, resource, request.payload.data["code_challenge"], redirect_uri
        )
        return redirect_uri

    def create_authorization_response(self, redirect_uri: str, grant_user: ApprovedRequest | None) -> Any:
        if grant_user is not None and not grant_user.scopes:
            raise InvalidScopeError("Nothing of what was asked for may be given.", redirect_uri=redirect_uri)
        return super().create_authorization_response(redirect_uri, grant_user)

    def generate_authorization_code(self) -> str:
        return self.server.ask.save_code(self.request.asked, self.request.client.client, self.request.user)

    def save_authorization_code(self, code: str, request: Any) -> None:
        """Saved where it is made."""

    def query_authorization_code(self, code: str, client: AuthlibClient) -> AuthlibCode | None:
        # Consumed here, before anything is issued: Authlib would delete it last, when several had it.
        found = self.server.ask.redeem(code, client.client)
        return None if found is None else AuthlibCode(found)

    def delete_authorization_code(self, authorization_code: Any) -> None: ...

    def validate_token_request(self) -> None:
        super().validate_token_request()
        code: AuthorizationCode = self.request.authorization_code.code
        given = self.request.payload.datalist.get("resource", [])
        if given and self.server.ask.resource(given) != code.resource:
            raise InvalidTarget

    def authenticate_user(self, authorization_code: AuthlibCode) -> OAuthGrant | None:
        return self.server.ask.grant(authorization_code.code)

    def generate_token(self, user: Any = None, include_refresh_token: bool = True, **more: Any) -> Json:
        return self.server.ask.tokens(user, refreshable=include_refresh_token)


class RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def validate_token_request(self) -> None:
        self.request.client = self._validate_request_client()
        if not self.request.form.get("refresh_token"):
            raise InvalidRequestError("Missing 'refresh_token' in request.")

    def create_token_response(self) -> Any:
        # One transaction from reading the old to writing the new, which Authlib's order of steps cannot be.
        given = self.request.payload.datalist.get("resource", [])
        resource = one_resource(self.request, self.server.ask) if given else None
        token = self.server.ask.refresh(self.request.form["refresh_token"], self.request.client.client, resource)
        if token is None:
            raise InvalidGrantError
        return 200, token, self.TOKEN_RESPONSE_HEADER


class ServiceGrant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = CONFIDENTIAL

    def create_token_response(self) -> Any:
        ask, client = self.server.ask, self.request.client.client
        resource = one_resource(self.request, ask)
        scopes = ask.scopes(client, self.request.payload.scope)
        token = ask.tokens(ask.service(client, scopes, resource), refreshable=False)
        return 200, token, self.TOKEN_RESPONSE_HEADER


class TokenRevocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def authenticate_token(self, request: Any, client: AuthlibClient) -> tuple[str, AuthlibClient]:
        if not request.form.get("token"):
            raise InvalidRequestError("Missing 'token' in request.")
        return request.form["token"], client

    def revoke_token(self, token: tuple[str, AuthlibClient], request: Any) -> None:
        # Unknown, or another client's: the answer is the same (RFC 7009, 2.2).
        self.server.ask.revoke(token[0], token[1].client)


Answer = tuple[int, list[tuple[str, str]], Any]

"""Status, headers, and a body that is JSON or text."""


class NotGranted(Exception):
    """An authorization request that is not good: in words for the person; and, where the client is known, the answer
    for it and the redirect address that it goes to."""

    def __init__(self, words: str, back: Answer | None, to: str = "") -> None:
        super().__init__(words)
        self.words = words
        self.back = back
        self.to = to


class AuthlibServer(AuthorizationServer):
    """The flows. Every method is called in a thread of its own."""

    def __init__(self, ask: AuthlibQueries, uri: str) -> None:
        super().__init__()
        self.ask = ask
        self._uri = uri
        self.register_client_auth_method("private_key_jwt", lambda _query, request: self._asserted(request))
        self.register_grant(CodeGrant, [S256Challenge(required=True)])
        self.register_grant(RefreshGrant)
        self.register_grant(ServiceGrant)
        self.register_endpoint(TokenRevocation)

    def request(self, method: str, pairs: Pairs, headers: Mapping[str, str]) -> OAuthRequest:
        return OAuthRequest(method, self._uri, pairs, {"Authorization": headers.get("authorization", "")})

    def tokens(self, request: OAuthRequest) -> Answer:
        return self.create_token_response(request)

    def revoked(self, request: OAuthRequest) -> Answer:
        return self.create_endpoint_response("revocation", request)

    def wanted(self, request: OAuthRequest) -> tuple[RegisteredClient, AuthorizationRequest, Any]:
        """The client, what it asks for, and what `decided` needs. Raises `NotGranted`."""
        try:
            grant = self.get_consent_grant(request)
        except OAuth2Error as error:
            status, body, headers = error()
            back = self.handle_response(status, body, headers) if error.redirect_uri else None
            raise NotGranted(error.description or error.error, back, error.redirect_uri or "") from error
        return grant.request.client.client, grant.request.asked, grant

    def decided(self, grant: Any, approved: ApprovedRequest | None) -> Answer:
        return self.create_authorization_response(grant.request, approved, grant)

    def query_client(self, client_id: str) -> AuthlibClient | None:
        found = self.ask.client(client_id)
        return None if found is None else AuthlibClient(self.ask, found)

    def _asserted(self, request: OAuthRequest) -> AuthlibClient | None:
        found = self.ask.assertion(request.form)
        return None if found is None else AuthlibClient(self.ask, found)

    def save_token(self, token: Any, request: Any) -> None:
        """Saved where it is made, in one transaction with what it replaces."""

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None: ...

    def create_oauth2_request(self, request: OAuthRequest) -> OAuthRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        return status, [(str(name), str(value)) for name, value in headers], body

    def validate_requested_scope(self, scope: str | None) -> None:
        """Unknown scopes are left out, never a reason to fail: clients add their own, such as offline_access."""


def with_issuer(uri: str, issuer: str) -> str:
    return add_params_to_uri(uri, [("iss", issuer)])
