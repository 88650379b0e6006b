"""Sessions of the handshake era.

The session id is the encrypted state of the session, so that any replica can open it without a lookup. `LegacyEra`
opens and ends sessions.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.contract import Caller, ClientProfile, Json
from gateway.protocol.sealed_tokens import (
    SESSION_SECONDS,
    SessionToken,
    TokenSeal,
    mint_session,
    read_session,
    session_digest,
)

_CACHE_SIZE: Final = 4096


class SessionStore(Protocol):
    """Stores the facts of a session that its id does not contain: small expiring rows, read from memory."""

    def is_ended(self, digest: str) -> bool: ...

    def log_level(self, digest: str) -> str | None: ...

    def subscriptions(self, digest: str) -> frozenset[str]: ...

    async def end(self, digest: str, expires: float) -> None: ...

    async def set_log_level(self, digest: str, level: str, expires: float) -> None: ...

    async def subscribe(self, digest: str, uri: str, expires: float) -> None: ...

    async def unsubscribe(self, digest: str, uri: str) -> None: ...

    async def load(self) -> None:
        """Load what other processes have written."""
        ...

    async def add_answer(self, digest: str, id: str, value: str) -> None: ...

    def on_answer(self, listener: Callable[[str, str, str], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class McpSession:
    """An opened session. `digest` identifies it in rows and keys: the tenant, a colon, 32 hex digits."""

    digest: str
    principal: str
    expires: float
    client: ClientProfile
    id: str


class McpSessions:
    """Mints and opens session ids, and ends sessions. Opened sessions are cached to save the decryption."""

    def __init__(self, seal: TokenSeal, store: SessionStore) -> None:
        self._seal = seal
        self.store = store
        self._cache: OrderedDict[str, McpSession] = OrderedDict()

    def mint(self, caller: Caller, version: str, capabilities: Json, info: Json | None) -> str:
        token = SessionToken(
            tenant=caller.tenant,
            principal=caller.principal,
            version=version,
            capabilities=capabilities,
            info=info,
            issued=int(time.time()),
            nonce=secrets.token_hex(8),
        )
        return mint_session(self._seal, token)

    def find(self, caller: Caller, id: str) -> McpSession | None:
        """Return the caller's session; None if the id is invalid, expired, ended or of another principal."""
        session = self._cache.get(id)
        if session is None:
            token = read_session(self._seal, id)
            if token is None:
                return None
            session = _session(token, id)
            self._cache[id] = session
            if len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
        if session.principal != caller.principal or session.expires < time.time():
            return None
        return None if self.store.is_ended(session.digest) else session

    async def end(self, session: McpSession) -> None:
        self._cache.pop(session.id, None)
        await self.store.end(session.digest, session.expires)


def _session(token: SessionToken, id: str) -> McpSession:
    # The tenant prefix allows limits on the stored rows of each tenant.
    digest = f"{token.tenant}:{session_digest(id)}"
    client = ClientProfile(token.version, token.capabilities, token.info, session=digest)
    return McpSession(digest, token.principal, token.issued + SESSION_SECONDS, client, id)
