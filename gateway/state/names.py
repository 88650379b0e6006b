"""Names that become part of paths and keys: nothing in them can leave a folder."""

import re
from typing import Final

from gateway.errors import Fault, Kind

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)


def checked(name: str, what: str) -> str:
    """The name itself. Raises `Fault(INVALID_INPUT)` unless it is lower-case letters, digits and hyphens."""
    if not _NAME.fullmatch(name):
        raise Fault(
            Kind.INVALID_INPUT,
            f"A {what}'s name is 1 to 64 lower-case letters, digits and hyphens, and does not start with a hyphen.",
        )
    return name
