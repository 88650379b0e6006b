"""Encrypted tokens that clients carry: session ids, the `requestState` of multi-round requests, and list cursors.

A client can neither read nor change a token, nor use it for another purpose, principal or request.
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
MAX_SESSION_ID_CHARS: Final = 2048
SESSION_SECONDS: Final = 30 * 24 * 3600
STATE_SECONDS: Final = 600
_PREFIX: Final = "v1."
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class InvalidSeal(Exception):
    """The token is invalid for this purpose or has expired; the message does not say which."""

    def __init__(self) -> None:
        super().__init__("Invalid or expired token.")


class TokenSeal:
    """AES-256-GCM encryption with a key ring: the first key encrypts, every key decrypts.

    Each purpose has its own derived keys.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
            raise ValueError(f"A seal needs at least one key, each of at least {MIN_KEY_BYTES} bytes.")
        self._keys = tuple(keys)
        self._ciphers: dict[str, tuple[AESGCM, ...]] = {}

    def seal(self, purpose: str, payload: bytes, bound: bytes = b"") -> str:
        """Encrypt `payload` to URL-safe text. `bound` is authenticated but not part of the text."""
        nonce = urandom(_NONCE_BYTES)
        return _as_text(nonce + self._ciphers_for(purpose)[0].encrypt(nonce, payload, bound))

    def open(self, purpose: str, text: str, bound: bytes = b"") -> bytes:
        """Decrypt a token. Raises `InvalidSeal` unless `seal` made it with the same purpose and bound data."""
        blob = _as_bytes(text)
        for cipher in self._ciphers_for(purpose):
            try:
                return cipher.decrypt(blob[:_NONCE_BYTES], blob[_NONCE_BYTES:], bound)
            except InvalidTag:
                continue
        raise InvalidSeal

    def _ciphers_for(self, purpose: str) -> tuple[AESGCM, ...]:
        ring = self._ciphers.get(purpose)
        if ring is None:
            ring = self._ciphers[purpose] = tuple(AESGCM(_derive_key(key, purpose)) for key in self._keys)
        return ring


def _derive_key(key: bytes, purpose: str) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"gatehouse seal v1 " + purpose.encode()).derive(key)


def _as_text(blob: bytes) -> str:
    return _PREFIX + urlsafe_b64encode(blob).rstrip(b"=").decode()


def _as_bytes(text: str) -> bytes:
    digits = text.removeprefix(_PREFIX)
    try:
        blob = urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    except ValueError:
        raise InvalidSeal from None
    # Base64 can encode the same bytes in several ways; only the form that `_as_text` writes is valid.
    if len(blob) < _NONCE_BYTES + _TAG_BYTES or _as_text(blob) != text:
        raise InvalidSeal
    return blob


# ---- sessions of the handshake era --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionToken:
    """The complete state of a handshake-era session, so that any replica can serve it without a lookup."""

    tenant: str
    principal: str
    version: str
    capabilities: Json
    info: Json | None
    issued: int
    """Unix time."""
    nonce: str
    """Makes two sessions of the same client distinct."""


def mint_session(seal: TokenSeal, token: SessionToken) -> str:
    """Return a session id of at most 2 KiB of visible ASCII.

    To fit, unknown capabilities are left out first, then the client info. Raises `ValueError` if the identity alone is
    too long.
    """
    pruned = replace(token, capabilities=_known_capabilities(token.capabilities))
    for candidate in (token, pruned, replace(pruned, info=None)):
        payload = encode(asdict(candidate))
        if len(payload) <= _MAX_SESSION_PAYLOAD:
            return seal.seal(_SESSION_PURPOSE, payload)
    raise ValueError("The identity is too long for a session id.")


def read_session(seal: TokenSeal, text: str, now: float | None = None) -> SessionToken | None:
    """Open a session id; None if it is invalid or older than 30 days."""
    try:
        token = msgspec.json.decode(seal.open(_SESSION_PURPOSE, text), type=SessionToken)
    except (InvalidSeal, msgspec.DecodeError):
        return None
    return token if _now(now) < token.issued + SESSION_SECONDS else None


def session_digest(text: str) -> str:
    """Return the digest that identifies a session in rows and keys; the session id cannot be derived from it."""
    return sha256(text.encode(errors="replace")).hexdigest()[:32]


def _known_capabilities(capabilities: Json) -> Json:
    return {
        name: {part: value for part, value in capabilities[name].items() if part in parts and _is_flag(value)}
        for name, parts in _CAPABILITIES.items()
        if isinstance(capabilities.get(name), dict)
    }


def _is_flag(value: Any) -> bool:
    return value == {} or isinstance(value, bool)


_SESSION_PURPOSE: Final = "session"
_MAX_SESSION_PAYLOAD: Final = (MAX_SESSION_ID_CHARS - len(_PREFIX)) * 3 // 4 - _NONCE_BYTES - _TAG_BYTES
# The capabilities that the gateway uses. Others are kept only if they fit.
_CAPABILITIES: Final = {"roots": ("listChanged",), "sampling": ("context", "tools"), "elicitation": ("form", "url")}


# ---- requestState of the modern era -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestState:
    """The content of a `requestState`: the backend that requires input, and that backend's own state."""

    namespace: str
    state: str | None
    expires: float
    approval: str = ""
    """The state of the gateway's `approve` stage, if that stage requires the input."""


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
    """Return a `requestState` that only this principal can use, for `ttl` seconds, to repeat the same request."""
    payload = encode(asdict(RequestState(namespace, state, _now(now) + ttl, approval)))
    return seal.seal(_STATE_PURPOSE, payload, encode([principal, method, target, arguments_digest]))


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
    """Open a `requestState`. Raises `InvalidSeal` if it was changed, has expired or belongs to another request."""
    payload = seal.open(_STATE_PURPOSE, text, encode([principal, method, target, arguments_digest]))
    try:
        state = msgspec.json.decode(payload, type=RequestState)
    except msgspec.DecodeError as exc:
        raise InvalidSeal from exc
    if _now(now) >= state.expires:
        raise InvalidSeal
    return state


def _now(now: float | None) -> float:
    return time.time() if now is None else now


_STATE_PURPOSE: Final = "request state"


_CURSOR_PURPOSE: Final = "cursor"


class SealedCursorCodec:
    """Seals the page number of a list cursor, bound to the list method; implements the catalogue's cursor codec."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def mint(self, method: str, page: int) -> str:
        return self._seal.seal(_CURSOR_PURPOSE, b"%d" % page, method.encode())

    def read(self, method: str, cursor: str) -> int:
        try:
            return int(self._seal.open(_CURSOR_PURPOSE, cursor, method.encode()))
        except (InvalidSeal, ValueError) as exc:
            message = "Invalid cursor. Start again without a cursor."
            raise Fault(Kind.INVALID_INPUT, message) from exc
