"""Sends requests to one URL of a server, with the gateway's credential if one is configured."""

from collections.abc import Awaitable
from typing import Protocol

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
    """One URL of a server. Every returned `LeasedConnection` must be released."""

    def __init__(self, pool: ConnectionPool, head: RequestHead, credential: UpstreamCredential | None = None) -> None:
        self.pool = pool
        self._head = head
        self._credential = credential

    def with_path(self, path: str) -> "HttpTarget":
        """The target for another path of the same server."""
        return HttpTarget(self.pool, self._head.with_path(path), self._credential)

    def post(self, headers: bytes, body: bytes, *, idempotent: bool = False) -> Awaitable[LeasedConnection]:
        """Send a POST. An `idempotent` one is sent again if it is unknown whether the server read it."""
        if self._credential is None:
            return self.pool.exchange(self._head.post(headers, body), idempotent)
        return self._send_authenticated(self._credential, "POST", headers, body, idempotent)

    def send_without_body(self, verb: str, headers: bytes) -> Awaitable[LeasedConnection]:
        """Send a request without a body; it is always idempotent."""
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
        return self._head.without_body(verb, authorized) if body is None else self._head.post(authorized, body)

    async def close(self) -> None:
        self.pool.close()
        if self._credential is not None:
            await self._credential.close()
