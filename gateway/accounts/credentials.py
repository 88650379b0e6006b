"""Credentials as header lines: bearer tokens and personal keys, and tokens that are bound to a key (DPoP)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from gateway.accounts.store import Account
from gateway.contract import Json

EARLY_SECONDS: Final = 30.0
EARLY_SHARE: Final = 0.1
"""A token is refreshed before it expires: by `EARLY_SECONDS`, or by this share of a shorter lifetime."""
DEFAULT_LIFETIME: Final = 3600.0
"""Lifetime of a token whose server does not name one; the server may reject it earlier."""


class ProofKey(Protocol):
    """A key that signs proofs of possession (`gateway.auth.dpop.DpopKey`)."""

    def export(self) -> str: ...

    def sign(self, method: str, url: str, token: str | None, nonce: str | None) -> str: ...


@dataclass(frozen=True, slots=True)
class ProofKeys:
    """Creates and loads proof keys."""

    generate: Callable[[], ProofKey]
    load: Callable[[str], ProofKey]


class StaticCredential:
    """A bearer token or a personal key: the same header lines for every request. `repr` does not show it."""

    __slots__ = ("lines", "renew_at", "value")

    def __init__(self, value: str, lines: bytes, renew_at: float) -> None:
        self.value = value
        self.lines: bytes | None = lines
        self.renew_at = renew_at

    def sign(self, verb: str, path: str) -> bytes:
        return self.lines or b""


class BoundCredential:
    """A token that is bound to a key: each request carries a new proof."""

    lines: bytes | None = None

    def __init__(self, value: str, key: ProofKey, origin: str, renew_at: float) -> None:
        self.value = value
        self.renew_at = renew_at
        self.nonce: str | None = None
        self._key = key
        self._origin = origin

    def sign(self, verb: str, path: str) -> bytes:
        proof = self._key.sign(verb, f"{self._origin}{path}", self.value, self.nonce)
        return f"authorization: DPoP {self.value}\r\ndpop: {proof}\r\n".encode("latin-1")

    def accept_nonce(self, headers: Mapping[str, str]) -> bool:
        """Use the nonce of a `use_dpop_nonce` challenge; False if the response is none, or repeats the nonce."""
        nonce = headers.get("dpop-nonce")
        if not nonce or nonce == self.nonce or "use_dpop_nonce" not in headers.get("www-authenticate", ""):
            return False
        self.nonce = nonce
        return True


Credential = StaticCredential | BoundCredential


@dataclass(frozen=True, slots=True)
class KeyHeader:
    """How a personal key is sent."""

    name: str = "Authorization"
    template: str = "Bearer {key}"

    def lines(self, key: str) -> bytes:
        return f"{self.name}: {self.template.replace('{key}', key)}\r\n".encode("latin-1")


def encode_access(token: str, key: ProofKey | None) -> str:
    """The text that the vault keeps: the token, and the key that it is bound to."""
    return token if key is None else msgspec.json.encode({"token": token, "key": key.export()}).decode()


def decode_access(account: Account) -> tuple[str, str | None]:
    """The access token of an account, and the key that it is bound to."""
    if not account.client.get("dpop"):
        return account.access.value, None
    stored: Json = msgspec.json.decode(account.access.value)
    return stored["token"], stored["key"]


def build_credential(account: Account, header: KeyHeader, keys: ProofKeys, origin: str) -> Credential:
    """The credential of a connected account at the server with this origin."""
    if account.kind == "key":
        return StaticCredential(account.access.value, header.lines(account.access.value), float("inf"))
    token, key = decode_access(account)
    renew_at = renewal_time(account)
    if key is not None:
        return BoundCredential(token, keys.load(key), origin, renew_at)
    return StaticCredential(token, f"authorization: Bearer {token}\r\n".encode("latin-1"), renew_at)


def renewal_time(account: Account) -> float:
    """When the access token is refreshed, in Unix time."""
    if account.expires_at is None:
        return account.connected_at + DEFAULT_LIFETIME if account.refresh is not None else float("inf")
    lifetime = account.lifetime or DEFAULT_LIFETIME
    return account.expires_at - min(EARLY_SECONDS, lifetime * EARLY_SHARE)
