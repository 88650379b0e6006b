"""Sealed tokens: state that a client carries for us, and can neither read nor change nor use elsewhere.

Cursors of the lists, sealed: a client can bring back only what it was given, for the list it was given for.
"""

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from os import urandom
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.protocol.strict_json import encode

MIN_KEY_BYTES: Final = 32

SESSION_CHARS: Final = 2048

SESSION_SECONDS: Final = 30 * 24 * 3600

STATE_SECONDS: Final = 600

_PREFIX: Final = "v1."

_NONCE_BYTES: Final = 12

_TAG_BYTES: Final = 16


class InvalidSeal(Exception):
    """Not a token of ours for this purpose, or no longer good. Never says which."""

    def __init__(self) -> None:
        super().__init__("Not a token of ours, or no longer good.")


class TokenSeal:
    """AES-256-GCM under a key ring: the first key seals, every key opens; each purpose has keys of its own."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
            raise ValueError(f"A seal needs at least one key, each of at least {MIN_KEY_BYTES} bytes.")
        self._keys = tuple(keys)
        self._ciphers: dict[str, tuple[AESGCM, ...]] = {}

    def seal(self, purpose: str, payload: bytes, bound: bytes = b"") -> str:
        """URL-safe text that `open` turns back into `payload`, given the same purpose and bound data."""
        nonce = urandom(_NONCE_BYTES)
        return _as_text(nonce + self._ring(purpose)[0].encrypt(nonce, payload, bound))

    def open(self, purpose: str, text: str, bound: bytes = b"") -> bytes:
        """Raises `Unsealed` for anything but what `seal` made with the same purpose and bound data."""
        blob = _as_bytes(text)
        for cipher in self._ring(purpose):
            try:
                return cipher.decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], bound)
            except InvalidTag:
                continue
        raise InvalidSeal

    def _ring(self, purpose: str) -> tuple[AESGCM, ...]:
        ring = self._ciphers.get(purpose)
        if ring is None:
            ring = self._ciphers[purpose] = tuple(AESGCM(_derived(key, purpose)) for key in self._keys)
        return ring


def _derived(key: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"gatehouse seal v1 " + purpose.encode()).derive(key)


def _as_text(blob: bytes) -> str:
    return _PREFIX + urlsafe_b64encode(blob).rstrip(b"=").decode()


def _as_bytes(text: str) -> bytes:
    digits = text.removeprefix(_PREFIX)
    try:
        blob = urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    except ValueError:
        raise InvalidSeal from None
    # Base64 has many spellings of the same bytes; only the one we wrote is ours.
    if len(blob) < _NONCE_BYTES + _TAG_BYTES or _as_text(blob) != text:
        raise InvalidSeal
    return blob


# ---- sessions of the handshake era --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionToken:
    """All there is to a session of the handshake era, so that any replica can serve it without a lookup."""

    tenant: str
    principal: str
    version: str
    capabilities: Json
    info: Json | None
    issued: int
    """Unix time."""
    nonce: str
    """Two sessions of one client differ in nothing else."""


def mint_session(seal: TokenSeal, token: SessionToken) -> str:
    """A session id of at most 2 KiB of visible ASCII; what does not fit is left out, unknown capabilities first.

    Raises `ValueError` when the identity alone is too long.
    """
    pruned = replace(token, capabilities=_known(token.capabilities))
    for fitting in (token, pruned, replace(pruned, info=None)):
        payload = encode(asdict(fitting))
        if len(payload) <= _SESSION_PAYLOAD:
            return seal.seal(_SESSION, payload)
    raise ValueError("The identity is too long for a session id.")


def read_session(seal: TokenSeal, text: str, now: float | None = None) -> SessionToken | None:
    """None when it is not ours, or older than 30 days."""
    try:
        token = msgspec.json.decode(seal.open(_SESSION, text), type=SessionToken)
    except (InvalidSeal, msgspec.DecodeError):
        return None
    return token if _now(now) < token.issued + SESSION_SECONDS else None


def digest(text: str) -> str:
    """The name of a session in rows and keys: tells them apart, and is of no use to whoever reads it."""
    return sha256(text.encode(errors="replace")).hexdigest()[:32]


def _known(capabilities: Json) -> Json:
    return {
        name: {part: value for part, value in capabilities[name].items() if part in parts and _is_flag(value)}
        for name, parts in _CAPABILITIES.items()
        if isinstance(capabilities.get(name), dict)
    }


def _is_flag(value: Any) -> bool:
    return value == {} or isinstance(value, bool)


_SESSION: Final = "session"

_SESSION_PAYLOAD: Final = (SESSION_CHARS - len(_PREFIX)) * 3 // 4 - _NONCE_BYTES - _TAG_BYTES
# What the gateway acts on. The rest is kept only while it fits.
_CAPABILITIES: Final = {"roots": ("listChanged",), "sampling": ("context", "tools"), "elicitation": ("form", "url")}


# ---- requestState of the modern era -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestState:
    """What a multi-round request comes back with: which backend asked, and that backend's own state."""

    namespace: str
    state: str | None
    expires: float
    approval: str = ""
    """What the gateway's own stage for approvals wants to be told again."""


def mint_state(
    seal: TokenSeal,
    *,
    principal: str,
    method: str,
    target: str,
    arguments_digest: str,
    namespace: str,
    state: str | None,
    approval: str = "",
    ttl: float = STATE_SECONDS,
    now: float | None = None,
) -> str:
    """A `requestState` that only this principal can use, for `ttl` seconds, to repeat this very request."""
    payload = encode(asdict(RequestState(namespace, state, _now(now) + ttl, approval)))
    return seal.seal(_STATE, payload, encode([principal, method, target, arguments_digest]))


def read_state(
    seal: TokenSeal,
    text: str,
    *,
    principal: str,
    method: str,
    target: str,
    arguments_digest: str,
    now: float | None = None,
) -> RequestState:
    """Raises `Unsealed` when it was changed, has expired, or belongs to another principal or request."""
    payload = seal.open(_STATE, text, encode([principal, method, target, arguments_digest]))
    try:
        state = msgspec.json.decode(payload, type=RequestState)
    except msgspec.DecodeError as exc:
        raise InvalidSeal from exc
    if _now(now) >= state.expires:
        raise InvalidSeal
    return state


def _now(now: float | None) -> float:
    return time.time() if now is None else now


_STATE: Final = "request state"


_PURPOSE: Final = "cursor"


class SealedCursorCodec:
    """`gateway.catalogue.view.Cursors`."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def mint(self, method: str, page: int) -> str:
        return self._seal.seal(_PURPOSE, b"%d" % page, method.encode())

    def read(self, method: str, cursor: str) -> int:
        try:
            return int(self._seal.open(_PURPOSE, cursor, method.encode()))
        except (InvalidSeal, ValueError) as exc:
            message = "That cursor is not one of ours; start again without a cursor."
            raise Fault(Kind.INVALID_INPUT, message) from exc
