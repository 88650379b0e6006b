"""What an approval is for: the digests of a call's arguments and of the definition of its tool."""

from hashlib import sha256
from typing import Final

import msgspec

from gateway.contract import Call, Json

_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def canonical_arguments(arguments: Json) -> str:
    """The arguments as JSON with sorted keys: equal for equal arguments in any order."""
    return _encode_sorted(arguments).decode()


def text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def definition_digest(call: Call) -> str:
    """Digest of the tool's definition and effect: an approval is void once either changes."""
    assert call.route is not None
    known = [call.route.canonical, call.route.effect, call.route.definition]
    return sha256(_encode_sorted(known)).hexdigest()[:32]
