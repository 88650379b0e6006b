"""The gateway as a `private_key_jwt` client (RFC 7523) of other authorization servers.

Used by backends with `oauth.client_key`.
"""

import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

LIFE_SECONDS: Final = 60
_CURVE: Final = "P-256"


class ClientKey:
    """Signs client assertions with a unique id and a lifetime of one minute. `repr` does not show the key."""

    def __init__(self, client_id: str, key: str, *, clock: Callable[[], float] = time.time) -> None:
        """`key` is a private key as PEM or JWK; the `kid` of a JWK goes into the header. Raises `ValueError`."""
        self._client_id = client_id
        self._key = _import_key(key)
        self._algorithm = "RS256" if isinstance(self._key, RSAKey) else "ES256"
        self._clock = clock

    def sign_assertion(self, audience: str) -> str:
        now = int(self._clock())
        claims: dict[str, Any] = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": audience,
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + LIFE_SECONDS,
        }
        header = {"alg": self._algorithm, "typ": "JWT"} | ({"kid": self._key.kid} if self._key.kid else {})
        return jwt.encode(header, claims, self._key, algorithms=[self._algorithm])


def _import_key(text: str) -> ECKey | RSAKey:
    for kind in (ECKey, RSAKey):
        try:
            material: Any = json.loads(text) if text.lstrip().startswith("{") else text
            key = kind.import_key(material)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if not key.is_private or (isinstance(key, ECKey) and key.curve_name != _CURVE):
            break
        return key
    raise ValueError("not a private key of RSA or of the curve P-256, as PEM or JWK")
