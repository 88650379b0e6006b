"""How a key is written: `gth_<id>_<secret>_<check>`.

The check lets a typo be seen, and a leaked key be found, without asking anybody.
"""

import re
import secrets
import string
import zlib
from typing import Final

_ID_CHARACTERS: Final = string.ascii_lowercase + string.digits
_CHECK_CHARACTERS: Final = string.digits + string.ascii_letters
_ID_LENGTH: Final = 12
_CHECK_LENGTH: Final = 6
# By length, not by separator: base64url has underscores of its own.
_KEY: Final = re.compile(r"gth_([a-z0-9]{12})_([A-Za-z0-9_-]{43})_([A-Za-z0-9]{6})", re.ASCII)


def new_id() -> str:
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def spell(keyid: str, secret: str) -> str:
    stem = f"gth_{keyid}_{secret}"
    return f"{stem}_{_check(stem)}"


def parse(key: str) -> tuple[str, str] | None:
    """The id and the secret; None when it is no key, or one with a typo."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    keyid, secret, check = match.groups()
    return (keyid, secret) if check == _check(f"gth_{keyid}_{secret}") else None


def _check(stem: str) -> str:
    """CRC-32 in base 62, most significant digit first."""
    rest, check = zlib.crc32(stem.encode("ascii")), ""
    for _ in range(_CHECK_LENGTH):
        rest, digit = divmod(rest, len(_CHECK_CHARACTERS))
        check = _CHECK_CHARACTERS[digit] + check
    return check
