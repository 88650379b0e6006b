"""Who calls.

The scopes: what a credential was made for.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Json = dict[str, Any]

Result = Json | bytes

"""What a call answers: an object in the newest revision's shape, or such an object already encoded."""

MODERN = "2026-07-28"

"""The revision without a handshake. Every earlier one is of the handshake era."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as the credential says: never as a URL, header or argument says."""

    tenant: str
    subject: str
    kind: Literal["user", "service"] = "user"
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    credential: str = ""
    """The key's or token family's id: for audit and revocation, never the secret."""
    expires: float | None = None
    """Unix time after which the credential, and every stream opened with it, is no longer good."""
    resource: str = "/mcp"
    """The endpoint the credential is good for; `/mcp` is good for all below it."""
    client: str = ""
    """The OAuth client that a token was issued to; empty for a key."""
    token: str = ""
    """A token's own id; empty for a key."""
    issued: float = 0.0
    """Unix time at which a token was made; 0 for a key, and where its issuer does not say."""
    principal: str = field(init=False)
    """Tenant, kind and subject in one word: what limits, sessions and records are kept by."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "principal", f"{self.tenant}/{self.kind}:{self.subject}")
        whole = (self.principal, self.groups, self.scopes, self.credential, self.expires, self.resource, self.token)
        object.__setattr__(self, "_hash", hash(whole))

    def may_receive(self, owner: str | None) -> bool:
        """Whether what is for that tenant or principal, or for everybody, is for this caller."""
        return owner is None or owner in (self.tenant, self.principal)

    def __hash__(self) -> int:
        # Made once: every call looks several things up by its caller.
        return self._hash


EVERYDAY: Final = ("mcp:list", "mcp:call", "mcp:call:write")

"""What a credential has unless its maker says otherwise."""

BRIDGES: Final = ("bridge:roblox", "bridge:godot")

ADMIN: Final = "mcp:admin"

SCOPES: Final = frozenset((*EVERYDAY, *BRIDGES, ADMIN))

"""All that there are."""
