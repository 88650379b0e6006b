"""Verification of any bearer credential: API key or access token. Used by the edge's `BearerAuthenticator`."""

from collections.abc import Awaitable, Callable

from gateway.auth.api_keys import ApiKeys, parse_key
from gateway.auth.revocations import Revocations
from gateway.auth.tokens import AccessTokens
from gateway.contract import Caller

_PREFIX = "gth_"


class Credentials:
    """Verifies API keys and access tokens.

    `is_active_user` takes tenant and subject; it is None when the users are managed by an external issuer.
    """

    def __init__(
        self,
        keys: ApiKeys,
        tokens: AccessTokens | None,
        revocations: Revocations,
        is_active_user: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._revocations = revocations
        self._is_active_user = is_active_user

    async def verify(self, text: str) -> Caller | None:
        """Return the caller; None if invalid. Raises `Fault` like `ApiKeys.verify` and `AccessTokens.verify`."""
        if text.startswith(_PREFIX) or self._tokens is None:
            return await self._keys.verify(text)
        return await self._tokens.verify(text)

    async def is_active(self, caller: Caller) -> bool:
        """Return whether work started with the credential may continue.

        An expired token may continue; a revoked token, an inactive key or a removed user may not.
        """
        if not caller.token:
            return await self._keys.is_active(caller.credential)
        if self._revocations.is_revoked(caller):
            return False
        return (
            caller.kind == "service"
            or self._is_active_user is None
            or await self._is_active_user(caller.tenant, caller.subject)
        )

    def on_revoke(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of a revocation in any process."""
        self._keys.on_revoke(listener)
        self._revocations.on_change(listener)


def key_id(text: str) -> str | None:
    """Return the id part of an API key, to count failed attempts per key; None if the text is not a key."""
    parts = parse_key(text)
    return parts[0] if parts else None
