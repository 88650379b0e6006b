"""One address, and how the gateway presents itself there."""

from collections.abc import Awaitable
from typing import Protocol

from gateway.upstream.http.pool import ConnectionPool, LeasedConnection
from gateway.upstream.http.request import RequestHead


class UpstreamCredential(Protocol):
    """A token of the gateway's own, good for a while."""

    async def token(self) -> str:
        """Raises `Fault(UNAVAILABLE)` when there is none to be had."""
        ...

    def refused(self, token: str) -> None:
        """The server did not take it: the next one must be new."""
        ...

    async def close(self) -> None: ...


class HttpTarget:
    def __init__(self, pool: ConnectionPool, head: RequestHead, credential: UpstreamCredential | None = None) -> None:
        self._pool = pool
        self._head = head
        self._credential = credential

    def at(self, path: str) -> "HttpTarget":
        """The same server, another path."""
        return HttpTarget(self._pool, self._head.at(path), self._credential)

    def post(self, fields: bytes, body: bytes, *, safe: bool = False) -> Awaitable[LeasedConnection]:
        """The answer, which must be released. What is `safe` may be sent twice where the first may not have arrived."""
        if self._credential is None:
            return self._pool.exchange(self._head.post(fields, body), safe)
        return self._as(self._credential, "POST", fields, body, safe)

    def bare(self, verb: str, fields: bytes) -> Awaitable[LeasedConnection]:
        """A request without a body; always safe."""
        if self._credential is None:
            return self._pool.exchange(self._head.bare(verb, fields), True)
        return self._as(self._credential, verb, fields, None, True)

    async def _as(
        self, credential: UpstreamCredential, verb: str, fields: bytes, body: bytes | None, safe: bool
    ) -> LeasedConnection:
        """With a token; one that is refused is replaced once: a request that was not let in was not carried out."""
        token = await credential.token()
        leased = await self._pool.exchange(self._request(verb, fields, body, token), safe)
        if leased.response.status != 401:
            return leased
        leased.release()
        credential.refused(token)
        return await self._pool.exchange(self._request(verb, fields, body, await credential.token()), safe)

    def _request(self, verb: str, fields: bytes, body: bytes | None, token: str) -> bytes:
        known = b"%bauthorization: Bearer %b\r\n" % (fields, token.encode("latin-1"))
        return self._head.bare(verb, known) if body is None else self._head.post(known, body)

    async def close(self) -> None:
        self._pool.close()
        if self._credential is not None:
            await self._credential.close()
