"""Sends requests to one URL of a server, with the credential of the gateway or of the caller's account."""

import re
from collections.abc import Awaitable, Mapping
from typing import Protocol

from gateway.upstream.account_access import AccountCredential, AccountRequired, AccountToken
from gateway.upstream.http.pool import ConnectionPool, LeasedConnection
from gateway.upstream.http.request import RequestHead


class UpstreamCredential(Protocol):
    """Provides the gateway's access token for one server."""

    async def token(self) -> str:
        """Return a valid token. Raises `Fault(UNAVAILABLE)` when none can be obtained."""
        ...

    def invalidate(self, token: str) -> None:
        """The server rejected the token: fetch a new one on next use."""
        ...

    async def close(self) -> None: ...


class HttpTarget:
    """One URL of a server. Every returned `LeasedConnection` must be released.

    Requests of an `owner`, a principal, carry the credential of that principal's account if the server has accounts.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        head: RequestHead,
        credential: UpstreamCredential | None = None,
        accounts: AccountCredential | None = None,
    ) -> None:
        self.pool = pool
        self._head = head
        self._credential = credential
        self._accounts = accounts

    def with_path(self, path: str) -> "HttpTarget":
        """The target for another path of the same server."""
        return HttpTarget(self.pool, self._head.with_path(path), self._credential, self._accounts)

    def post(
        self, headers: bytes, body: bytes, *, idempotent: bool = False, owner: str = ""
    ) -> Awaitable[LeasedConnection]:
        """Send a POST. An `idempotent` one is sent again if it is unknown whether the server read it."""
        if owner and self._accounts is not None:
            return self._send_for_account(self._accounts, owner, "POST", headers, body, idempotent)
        if self._credential is None:
            return self.pool.exchange(self._head.post(headers, body), idempotent)
        return self._send_authenticated(self._credential, "POST", headers, body, idempotent)

    def send_without_body(self, verb: str, headers: bytes, owner: str = "") -> Awaitable[LeasedConnection]:
        """Send a request without a body; it is always idempotent."""
        if owner and self._accounts is not None:
            return self._send_for_account(self._accounts, owner, verb, headers, None, True)
        if self._credential is None:
            return self.pool.exchange(self._head.without_body(verb, headers), True)
        return self._send_authenticated(self._credential, verb, headers, None, True)

    def request(
        self, verb: str, path: str, headers: bytes, body: bytes | None, *, idempotent: bool = False
    ) -> Awaitable[LeasedConnection]:
        """Send any request to another path of the same server. `headers` name the type of the body."""
        if self._credential is None:
            return self.pool.exchange(self._head.request(verb, path, headers, body), idempotent)
        return self._send_authenticated(self._credential, verb, headers, body, idempotent, path)

    async def _send_authenticated(
        self,
        credential: UpstreamCredential,
        verb: str,
        headers: bytes,
        body: bytes | None,
        idempotent: bool,
        path: str | None = None,
    ) -> LeasedConnection:
        """Send with a token. Retries once with a new token on 401: a rejected request was not executed."""
        token = await credential.token()
        leased = await self.pool.exchange(self._request(verb, headers, body, token, path), idempotent)
        if leased.response.status != 401:
            return leased
        leased.release()
        credential.invalidate(token)
        return await self.pool.exchange(self._request(verb, headers, body, await credential.token(), path), idempotent)

    def _request(self, verb: str, headers: bytes, body: bytes | None, token: str, path: str | None) -> bytes:
        authorized = b"%bauthorization: Bearer %b\r\n" % (headers, token.encode("latin-1"))
        if path is not None:
            return self._head.request(verb, path, authorized, body)
        return self._encode(verb, authorized, body)

    async def _send_for_account(
        self, accounts: AccountCredential, owner: str, verb: str, headers: bytes, body: bytes | None, idempotent: bool
    ) -> LeasedConnection:
        """Send with the owner's credential. Retries once with another one on 401.

        Raises `AccountRequired` if the server rejects that one too, or demands scopes that the account lacks.
        """
        token = accounts.cached(owner) or await accounts.obtain(owner)
        leased = await self._exchange_for(token, verb, headers, body, idempotent)
        if leased.response.status == 401:
            leased.release()
            token = await accounts.replace(owner, token, leased.response.headers)
            leased = await self._exchange_for(token, verb, headers, body, idempotent)
            if leased.response.status == 401:
                leased.release()
                await accounts.give_up(owner, token)
        if leased.response.status == 403 and (scopes := _demanded_scopes(leased.response.headers)) is not None:
            leased.release()
            raise AccountRequired(self.pool.name, "scopes", scopes)
        return leased

    def _exchange_for(
        self, token: AccountToken, verb: str, headers: bytes, body: bytes | None, idempotent: bool
    ) -> Awaitable[LeasedConnection]:
        lines = token.lines
        if lines is None:
            lines = token.sign(verb, self._head.path)
        return self.pool.exchange(self._encode(verb, headers + lines, body), idempotent)

    def _encode(self, verb: str, headers: bytes, body: bytes | None) -> bytes:
        return self._head.without_body(verb, headers) if body is None else self._head.post(headers, body)

    async def close(self) -> None:
        self.pool.close()
        if self._credential is not None:
            await self._credential.close()


def _demanded_scopes(headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """The scopes of an `insufficient_scope` challenge (RFC 6750); None for any other response."""
    challenge = headers.get("www-authenticate", "")
    if not re.search(r'error="?insufficient_scope\b', challenge):
        return None
    scope = re.search(r'scope="([^"\\]{1,1000})"', challenge)
    return tuple(scope[1].split()) if scope else ()
