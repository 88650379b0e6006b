"""Reading a signed JWT strictly: nothing in its header chooses how it is checked, or where a key comes from."""

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
"""All that is ever accepted; an issuer may be held to fewer."""

_LONGEST: Final = 16 * 1024
_PART: Final = r"[A-Za-z0-9_-]+"
_COMPACT: Final = re.compile(rf"({_PART})\.({_PART})\.({_PART})", re.ASCII)
_KEY_TYPES: Final = {"ES256": "EC", "RS256": "RSA"}
_LONGEST_KID: Final = 256


class InvalidToken(Exception):
    """Not a token that anybody here could accept."""


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """What a token says of itself: good for finding out who could have signed it, and for nothing else."""

    text: str
    alg: str
    kid: str | None
    typ: str
    issuer: str


def peek(text: str) -> UnverifiedToken:
    """Raises `BadToken` for anything but a compact JWS with a plain header and an issuer."""
    parts = _COMPACT.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        raise InvalidToken
    header, claims = _object(parts[1]), _object(parts[2])
    alg, kid, typ, issuer = header.get("alg"), header.get("kid"), header.get("typ", ""), claims.get("iss")
    # Extensions that must be understood are not; an unencoded payload (b64) is one of them.
    if "crit" in header or "b64" in header or alg not in ALGORITHMS:
        raise InvalidToken
    if not (kid is None or (isinstance(kid, str) and len(kid) <= _LONGEST_KID)):
        raise InvalidToken
    if not isinstance(typ, str) or not isinstance(issuer, str):
        raise InvalidToken
    return UnverifiedToken(text, alg, kid, typ.lower().removeprefix("application/"), issuer)


def verified(token: UnverifiedToken, key: Key, algorithms: Iterable[str]) -> Json:
    """The claims, signed by that key with the algorithm the header names. Raises `BadToken`."""
    if token.alg not in algorithms or _KEY_TYPES[token.alg] != key.key_type:
        raise InvalidToken
    try:
        found = jws.deserialize_compact(token.text, key, algorithms=[token.alg])
    except (JoseError, ValueError, TypeError) as exc:
        raise InvalidToken from exc
    return _decoded(found.payload)


def _object(part: str) -> Json:
    try:
        return _decoded(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError) as exc:
        raise InvalidToken from exc


def _decoded(raw: bytes) -> Json:
    try:
        value: Any = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as exc:
        raise InvalidToken from exc
    if not isinstance(value, dict):
        raise InvalidToken
    return cast("Json", value)


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidToken
    return found
