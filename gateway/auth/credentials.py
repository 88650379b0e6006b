"""One answer to who a credential speaks for, whichever kind it is."""

from collections.abc import Awaitable, Callable

from gateway.auth.api_keys import ApiKeys, parse
from gateway.auth.revocations import Revocations
from gateway.auth.tokens import AccessTokens
from gateway.contract import Caller

_PREFIX = "gth_"


class Credentials:
    """API keys beside tokens, under the same scopes. `user` says whether a user still exists, where we would know."""

    def __init__(
        self,
        keys: ApiKeys,
        tokens: AccessTokens | None,
        revocations: Revocations,
        user: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._revocations = revocations
        self._user = user

    async def verify(self, text: str) -> Caller | None:
        """Raises `Fault`, as `Keys.verify` and `Tokens.verify` do."""
        if text.startswith(_PREFIX) or self._tokens is None:
            return await self._keys.verify(text)
        return await self._tokens.verify(text)

    async def good(self, caller: Caller) -> bool:
        """Whether work begun with the credential may go on. A token's own end is not the end of what it began:
        what it rests on must still stand."""
        if not caller.token:
            return await self._keys.good(caller.credential)
        if self._revocations.holds(caller):
            return False
        return caller.kind == "service" or self._user is None or await self._user(caller.tenant, caller.subject)

    async def on_revoke(self, listener: Callable[[], None]) -> None:
        """Call `listener` within a second of any revocation, in whichever process."""
        await self._keys.on_revoke(listener)
        self._revocations.on_change(listener)


def key_id(text: str) -> str | None:
    """The id of what is written like a key, for counting guesses at one key."""
    parts = parse(text)
    return parts[0] if parts else None
