"""Seals cookies, links and forms of the web pages with the keys of the session ids."""

from gateway.protocol.sealed_tokens import InvalidSeal, TokenSeal


class SealedCookies:
    """Implements `gateway.console.session.CookieSeal` with the keys of the session ids."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def seal(self, purpose: str, payload: bytes) -> str:
        return self._seal.seal(purpose, payload)

    def open(self, purpose: str, text: str) -> bytes | None:
        try:
            return self._seal.open(purpose, text)
        except InvalidSeal:
            return None
