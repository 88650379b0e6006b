"""AES-GCM for values in the database that only this gateway, or only the holder of a token, may read."""

import base64
import binascii
import hashlib
import json
import os
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.contract import Json

_NONCE_BYTES: Final = 12


class Sealer:
    """Seals JSON objects. A value opens only with the key and the context that it was sealed with."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def from_token(cls, purpose: str, token: str) -> "Sealer":
        """Create a sealer whose key is derived from a random token that is not stored."""
        return cls(hashlib.sha256(f"{purpose} {token}".encode()).digest())

    def seal(self, value: Json, context: str = "") -> str:
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(
            nonce + self._cipher.encrypt(nonce, json.dumps(value).encode(), context.encode())
        ).decode()

    def open(self, sealed: str, context: str = "") -> Json | None:
        """Return the value; None if it was sealed with another key or context, or was changed."""
        try:
            raw = base64.b64decode(sealed, validate=True)
            plain = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode())
        except (InvalidTag, binascii.Error, ValueError):
            return None
        value: Any = json.loads(plain)
        return value
