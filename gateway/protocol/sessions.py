"""Sessions of the handshake era: the id is the state, sealed; any replica opens it without a lookup."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.contract import Caller, ClientProfile, Json
from gateway.protocol.sealed_tokens import SESSION_SECONDS, SessionToken, TokenSeal, digest, mint_session, read_session

_KEPT: Final = 4096


class SessionStore(Protocol):
    """The few facts of a session that are not in its id: small expiring rows, read from memory."""

    def ended(self, digest: str) -> bool: ...

    def log_level(self, digest: str) -> str | None: ...

    def subscriptions(self, digest: str) -> frozenset[str]: ...

    async def end(self, digest: str, expires: float) -> None: ...

    async def set_log_level(self, digest: str, level: str, expires: float) -> None: ...

    async def subscribe(self, digest: str, uri: str, expires: float) -> None: ...

    async def unsubscribe(self, digest: str, uri: str) -> None: ...

    async def load(self) -> None:
        """Take in what other processes have written."""
        ...

    async def answer(self, digest: str, id: str, value: str) -> None: ...

    def on_answer(self, listener: Callable[[str, str, str], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class McpSession:
    """An opened session id. `digest` names it in rows and keys: its tenant, a colon, 32 hex digits."""

    digest: str
    principal: str
    expires: float
    client: ClientProfile
    id: str


class McpSessions:
    """Mints ids, opens them, and knows which were ended. The last few thousand opened are kept to save the opening."""

    def __init__(self, seal: TokenSeal, rows: SessionStore) -> None:
        self._seal = seal
        self.rows = rows
        self._opened: OrderedDict[str, McpSession] = OrderedDict()

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
        """None for an id that is not ours, not this principal's, too old or ended: all alike."""
        session = self._opened.get(id)
        if session is None:
            token = read_session(self._seal, id)
            if token is None:
                return None
            session = _session(token, id)
            self._opened[id] = session
            if len(self._opened) > _KEPT:
                self._opened.popitem(last=False)
        if session.principal != caller.principal or session.expires < time.time() or self.rows.ended(session.digest):
            return None
        return session

    async def end(self, session: McpSession) -> None:
        self._opened.pop(session.id, None)
        await self.rows.end(session.digest, session.expires)


def _session(token: SessionToken, id: str) -> McpSession:
    # The tenant comes first, so that what is kept of sessions can be kept of each tenant's apart.
    named = f"{token.tenant}:{digest(id)}"
    client = ClientProfile(token.version, token.capabilities, token.info, session=named)
    return McpSession(named, token.principal, token.issued + SESSION_SECONDS, client, id)
