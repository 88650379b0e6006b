"""Strict parsing and verification of signed JWTs.

The header of a token never selects the verification method or the location of a key.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from gateway.contract import Json

Key = ECKey | RSAKey
ALGORITHMS: Final = ("ES256", "RS256")
"""All accepted algorithms; an issuer may be restricted to fewer."""

_MAX_CHARS: Final = 16 * 1024
_PART: Final = r"[A-Za-z0-9_-]+"
_COMPACT: Final = re.compile(rf"({_PART})\.({_PART})\.({_PART})", re.ASCII)
_KEY_TYPES: Final = {"ES256": "EC", "RS256": "RSA"}
_MAX_KID_CHARS: Final = 256


class InvalidToken(Exception):
    """The token is malformed, or no configured issuer accepts it."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """Header and issuer of a token before verification; use them only to select issuer and key."""

    text: str
    alg: str
    kid: str | None
    typ: str
    issuer: str


def parse_unverified(text: str) -> UnverifiedToken:
    """Parse a compact JWS with an issuer, without verification. Raises `InvalidToken`."""
    parts = _COMPACT.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if parts is None:
        raise InvalidToken
    header, claims = _decode_part(parts[1]), _decode_part(parts[2])
    alg, kid, typ, issuer = header.get("alg"), header.get("kid"), header.get("typ", ""), claims.get("iss")
    # Critical extensions, such as an unencoded payload (b64), are not supported.
    if "crit" in header or "b64" in header or alg not in ALGORITHMS:
        raise InvalidToken
    if not (kid is None or (isinstance(kid, str) and len(kid) <= _MAX_KID_CHARS)):
        raise InvalidToken
    if not isinstance(typ, str) or not isinstance(issuer, str):
        raise InvalidToken
    return UnverifiedToken(text, alg, kid, typ.lower().removeprefix("application/"), issuer)


def verify_signature(token: UnverifiedToken, key: Key, algorithms: Iterable[str]) -> Json:
    """Return the claims if the key signed them with one of the algorithms. Raises `InvalidToken`."""
    if token.alg not in algorithms or _KEY_TYPES[token.alg] != key.key_type:
        raise InvalidToken
    try:
        found = jws.deserialize_compact(token.text, key, algorithms=[token.alg])
    except (JoseError, ValueError, TypeError) as exc:
        raise InvalidToken from exc
    return _parse_object(found.payload)


def _decode_part(part: str) -> Json:
    try:
        return _parse_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError) as exc:
        raise InvalidToken from exc


def _parse_object(raw: bytes) -> Json:
    try:
        value: Any = json.loads(raw, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as exc:
        raise InvalidToken from exc
    if not isinstance(value, dict):
        raise InvalidToken
    return cast("Json", value)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidToken
    return found
