"""Authlib's core, held to what we promise: no scope is ever a reason to fail, and what is saved is saved once.

Authlib is synchronous and has no types: it runs in a thread, and what it must know of the database is asked through
`Ask`.
"""

# pyright: reportArgumentType=false, reportIncompatibleMethodOverride=false, reportReturnType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Mapping
from typing import Any

from authlib.common.urls import add_params_to_uri
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import AuthorizationServer

from gateway.auth.server.asking import Approved, Ask, Asked
from gateway.auth.server.clients import Client
from gateway.auth.server.grants import CodeGrant, OnlyS256, RefreshGrant, Revoke, ServiceGrant
from gateway.auth.server.shapes import Known, Pairs, Request

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
            raise NotGranted(error.description or error.error, back, error.redirect_uri or "") from error
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

    def handle_response(self, status: int, body: Any, headers: Any) -> Answer:
        return status, [(str(name), str(value)) for name, value in headers], body

    def validate_requested_scope(self, scope: str | None) -> None:
        """Unknown scopes are left out, never a reason to fail: clients add their own, such as offline_access."""


def with_issuer(uri: str, issuer: str) -> str:
    return add_params_to_uri(uri, [("iss", issuer)])
