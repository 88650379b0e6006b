"""Authlib's core, held to what we promise: S256 for everybody, one audience, one use, no scope ever a reason to fail.

Authlib is synchronous and has no types: it runs in a thread, and what it must know of the database is asked through
`Ask`. Each override below replaces a behaviour that would be unsafe here.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false
# pyright: reportUntypedBaseClass=false, reportIncompatibleMethodOverride=false, reportAttributeAccessIssue=false
# pyright: reportIncompatibleVariableOverride=false, reportMissingSuperCall=false, reportOptionalMemberAccess=false
# pyright: reportArgumentType=false, reportUnknownLambdaType=false, reportAssignmentType=false, reportDeprecated=false
# pyright: reportReturnType=false, reportGeneralTypeIssues=false

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from authlib.common.urls import add_params_to_uri
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    ClientMixin,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    JsonRequest,
    OAuth2Payload,
    OAuth2Request,
    grants,
)
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge

from gateway.auth.embedded import Grant
from gateway.auth.server.clients import Client
from gateway.auth.server.codes import Code
from gateway.auth.server.redirects import matches
from gateway.contract import Json

Pairs = Sequence[tuple[str, str]]
Answer = tuple[int, list[tuple[str, str]], Any]
"""Status, headers, and a body that is JSON or text."""

METHODS: Final = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
CONFIDENTIAL: Final = METHODS[1:]
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


class Ask(Protocol):
    """What the core asks of the house, from its thread."""

    def client(self, client_id: str) -> Client | None: ...

    def secret_is(self, client: Client, secret: str) -> bool: ...

    def assertion(self, form: Mapping[str, str]) -> Client | None: ...

    def scopes(self, client: Client, wanted: str | None) -> str: ...

    def resource(self, given: Sequence[str]) -> str | None: ...

    def save_code(self, asked: "Asked", client: Client, approved: "Approved") -> str: ...

    def redeem(self, code: str, client: Client) -> Code | None: ...

    def grant(self, code: Code) -> Grant | None: ...

    def tokens(self, grant: Grant, *, refreshable: bool) -> Json: ...

    def refresh(self, token: str, client: Client, resource: str | None) -> Json | None: ...

    def service(self, client: Client, scopes: str, resource: str) -> Grant: ...

    def revoke(self, token: str, client: Client) -> None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """An authorization request that was found good."""

    scopes: str
    resource: str
    challenge: str
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class Approved:
    """Who agreed, and to how much of it."""

    tenant: str
    subject: str
    scopes: str


class NotGranted(Exception):
    """An authorization request that is not good: in words for the person, and the answer for the client, if known."""

    def __init__(self, words: str, back: Answer | None) -> None:
        super().__init__(words)
        self.words = words
        self.back = back


class InvalidTarget(OAuth2Error):
    error = "invalid_target"
    description = "This is not a resource of this server."


class Payload(OAuth2Payload):
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


class Request(OAuth2Request):
    """Built from the public address: Authlib refuses plain http, and what the socket says is not what clients see."""

    def __init__(self, method: str, uri: str, pairs: Pairs, headers: Mapping[str, str]) -> None:
        # Loopback aside, TLS ends at the proxy that the operator put in front.
        super().__init__(method, uri.replace("http://", "https://", 1), headers=dict(headers))
        self.payload = Payload(pairs)
        self.asked: Asked | None = None

    @property
    def form(self) -> dict[str, str]:
        return self.payload.data

    @property
    def args(self) -> dict[str, str]:
        return self.payload.data


class Known(ClientMixin):
    """A client as Authlib wants to ask it."""

    def __init__(self, ask: Ask, client: Client) -> None:
        self._ask = ask
        self.client = client

    def get_client_id(self) -> str:
        return self.client.id

    def get_default_redirect_uri(self) -> str | None:
        # Only where there is nothing to choose.
        return self.client.redirect_uris[0] if len(self.client.redirect_uris) == 1 else None

    def get_allowed_scope(self, scope: str | None) -> str:
        return self._ask.scopes(self.client, scope)

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return matches(self.client.redirect_uris, redirect_uri)

    def check_client_secret(self, client_secret: str) -> bool:
        return self._ask.secret_is(self.client, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        known = self.client.auth_method
        # Whether the secret comes in the header or in the form is the client's choice: both prove the same.
        return method == known or {method, known} == {"client_secret_basic", "client_secret_post"}

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code" and self.check_grant_type("authorization_code")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.client.grant_types


class Redeemed:
    """A code as Authlib wants to ask it."""

    code_challenge_method = "S256"

    def __init__(self, code: Code) -> None:
        self.code = code
        self.code_challenge = code.challenge

    def get_redirect_uri(self) -> str:
        return self.code.redirect_uri

    def get_scope(self) -> str:
        return self.code.scopes


class Core(AuthorizationServer):
    """The flows. Every method is called in a thread of its own."""

    def __init__(self, ask: Ask, uri: str) -> None:
        super().__init__()
        self.ask = ask
        self._uri = uri
        self.register_client_auth_method("private_key_jwt", lambda _query, request: self._asserted(request))
        self.register_grant(CodeGrant, [OnlyS256(required=True)])
        self.register_grant(RefreshGrant)
        self.register_grant(ServiceGrant)
        self.register_endpoint(Revoke)

    def request(self, method: str, pairs: Pairs, headers: Mapping[str, str]) -> Request:
        return Request(method, self._uri, pairs, {"Authorization": headers.get("authorization", "")})

    def tokens(self, request: Request) -> Answer:
        return self.create_token_response(request)

    def revoked(self, request: Request) -> Answer:
        return self.create_endpoint_response("revocation", request)

    def wanted(self, request: Request) -> tuple[Client, Asked, Any]:
        """The client, what it asks for, and what `decided` needs. Raises `NotGranted`."""
        try:
            grant = self.get_consent_grant(request)
        except OAuth2Error as error:
            status, body, headers = error()
            back = self.handle_response(status, body, headers) if error.redirect_uri else None
            raise NotGranted(error.description or error.error, back) from error
        return grant.request.client.client, grant.request.asked, grant

    def decided(self, grant: Any, approved: Approved | None) -> Answer:
        return self.create_authorization_response(grant.request, approved, grant)

    def query_client(self, client_id: str) -> Known | None:
        found = self.ask.client(client_id)
        return None if found is None else Known(self.ask, found)

    def _asserted(self, request: Request) -> Known | None:
        found = self.ask.assertion(request.form)
        return None if found is None else Known(self.ask, found)

    def save_token(self, token: Any, request: Any) -> None:
        """Saved where it is made, in one transaction with what it replaces."""

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None: ...

    def create_oauth2_request(self, request: Request) -> Request:
        return request

    def create_json_request(self, request: Any) -> JsonRequest:
        raise NotImplementedError

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        return status, [(str(name), str(value)) for name, value in headers], body

    def validate_requested_scope(self, scope: str | None) -> None:
        """Unknown scopes are left out, never a reason to fail: clients add their own, such as offline_access."""


def with_issuer(uri: str, issuer: str) -> str:
    return add_params_to_uri(uri, [("iss", issuer)])


def one_resource(request: Request, ask: Ask) -> str:
    found = ask.resource(request.payload.datalist.get("resource", []))
    if found is None:
        raise InvalidTarget
    return found


class OnlyS256(CodeChallenge):
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
        request.asked = Asked(request.scope, resource, request.payload.data["code_challenge"], redirect_uri)
        return redirect_uri

    def create_authorization_response(self, redirect_uri: str, grant_user: Approved | None) -> Any:
        if grant_user is not None and not grant_user.scopes:
            raise InvalidScopeError("Nothing of what was asked for may be given.", redirect_uri=redirect_uri)
        return super().create_authorization_response(redirect_uri, grant_user)

    def generate_authorization_code(self) -> str:
        return self.server.ask.save_code(self.request.asked, self.request.client.client, self.request.user)

    def save_authorization_code(self, code: str, request: Any) -> None:
        """Saved where it is made."""

    def query_authorization_code(self, code: str, client: Known) -> Redeemed | None:
        # Consumed here, before anything is issued: Authlib would delete it last, when several had it.
        found = self.server.ask.redeem(code, client.client)
        return None if found is None else Redeemed(found)

    def delete_authorization_code(self, authorization_code: Any) -> None: ...

    def validate_token_request(self) -> None:
        super().validate_token_request()
        code: Code = self.request.authorization_code.code
        given = self.request.payload.datalist.get("resource", [])
        if given and self.server.ask.resource(given) != code.resource:
            raise InvalidTarget

    def authenticate_user(self, authorization_code: Redeemed) -> Grant | None:
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


class Revoke(RevocationEndpoint):
    CLIENT_AUTH_METHODS = METHODS

    def authenticate_token(self, request: Any, client: Known) -> tuple[str, Known]:
        if not request.form.get("token"):
            raise InvalidRequestError("Missing 'token' in request.")
        return request.form["token"], client

    def revoke_token(self, token: tuple[str, Known], request: Any) -> None:
        # Unknown, or another client's: the answer is the same (RFC 7009, 2.2).
        self.server.ask.revoke(token[0], token[1].client)
