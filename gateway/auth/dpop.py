"""Proofs of possession (DPoP, RFC 9449) as a client of other servers. Used by accounts at servers that demand them."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey

ALGORITHM: Final = "ES256"
TYPE: Final = "dpop+jwt"


class DpopKey:
    """A key that tokens are bound to. Each proof has an id of its own. `repr` does not show the key."""

    def __init__(self, key: ECKey, *, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock
        self._public: dict[str, Any] = {name: key.as_dict(private=False)[name] for name in ("kty", "crv", "x", "y")}

    @classmethod
    def generate(cls) -> "DpopKey":
        return cls(ECKey.generate_key("P-256", private=True))

    @classmethod
    def load(cls, text: str) -> "DpopKey":
        """Load the key that `export` returned."""
        return cls(ECKey.import_key(json.loads(text)))

    def export(self) -> str:
        """The private key as text, to be stored sealed."""
        return json.dumps(self._key.as_dict(private=True))

    def sign(self, method: str, url: str, token: str | None, nonce: str | None) -> str:
        """Sign a proof for one request. `token` is the access token that the request carries, if any."""
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url.partition("?")[0].partition("#")[0],
            "iat": int(self._clock()),
        }
        if token is not None:
            digest = hashlib.sha256(token.encode("ascii")).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if nonce:
            claims["nonce"] = nonce
        header = {"alg": ALGORITHM, "typ": TYPE, "jwk": self._public}
        return jwt.encode(header, claims, self._key, algorithms=[ALGORITHM])
