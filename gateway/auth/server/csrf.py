"""Forms that only our own pages can have made: a token bound to the browser and to the very request it answers."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

Pairs = Sequence[tuple[str, str]]


class Forms:
    """`cookie` names what a browser that is not signed in is known by."""

    def __init__(self, key: bytes, *, secure: bool) -> None:
        self._key = key
        self.cookie = "__Host-gatehouse-form" if secure else "gatehouse-form"

    def secret(self, cookies: Mapping[str, str]) -> tuple[str, str | None]:
        """What binds the form to the browser, and the cookie to set where it is new."""
        known = cookies.get(self.cookie)
        if known and len(known) <= 64:
            return known, None
        fresh = secrets.token_urlsafe(24)
        return fresh, f"{self.cookie}={fresh}; Max-Age=3600"

    def token(self, secret: str, query: Pairs) -> str:
        text = f"{secret}\n{urlencode(query)}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()

    def holds(self, token: str, secret: str | None, query: Pairs) -> bool:
        return secret is not None and hmac.compare_digest(token.encode(), self.token(secret, query).encode())
