"""The authenticated caller and its scopes."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]
Result = Json | bytes
"""Result of a call: an object in the newest revision's shape, or its encoded bytes."""
MODERN = "2026-07-28"
"""The revision without a handshake. All earlier revisions belong to the handshake era."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller. Every field comes from the credential, never from a URL, header or argument."""

    tenant: str
    subject: str
    kind: Literal["user", "service"] = "user"
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    credential: str = ""
    """Id of the API key or token family, for audit and revocation; never the secret."""
    expires: float | None = None
    """Unix time at which the credential expires, and with it every stream it opened."""
    resource: str = "/mcp"
    """MCP endpoint that the credential is valid for; `/mcp` covers all endpoints below it."""
    client: str = ""
    """OAuth client that the token was issued to; empty for an API key."""
    token: str = ""
    """Token id; empty for an API key."""
    issued: float = 0.0
    """Unix time at which the token was issued; 0 for an API key or if the issuer does not say."""
    principal: str = field(init=False)
    """`tenant/kind:subject`: the key of limits, sessions and records."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "principal", f"{self.tenant}/{self.kind}:{self.subject}")
        whole = (self.principal, self.groups, self.scopes, self.credential, self.expires, self.resource, self.token)
        object.__setattr__(self, "_hash", hash(whole))

    def may_receive(self, owner: str | None) -> bool:
        """Whether a notification for `owner` (a tenant, a principal, or None for everyone) may reach this caller."""
        return owner is None or owner in (self.tenant, self.principal)

    def __hash__(self) -> int:
        # Computed once: each call does several lookups by caller.
        return self._hash


DEFAULT_SCOPES: Final = ("mcp:list", "mcp:call", "mcp:call:write")
"""Scopes of a credential that is created without explicit scopes."""
ADMIN: Final = "mcp:admin"
APPROVE: Final = "mcp:approve"
"""Decide on calls that wait for approval. Never granted to a client that a model may use."""
SCOPES: Final = frozenset((*DEFAULT_SCOPES, ADMIN, APPROVE))
"""Every scope that the gateway defines. Modules define further ones (`Manifest.scopes`)."""
