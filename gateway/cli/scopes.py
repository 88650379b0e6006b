"""Scopes as they are given to a command."""

from collections.abc import Iterable
from typing import Final

from gateway.cli.failure import Failure
from gateway.contract.scopes import EVERYDAY, SCOPES

_OURS: Final = ("mcp:", "bridge:")


def checked_scopes(given: Iterable[str] | None, *, for_policies: bool = False) -> tuple[str, ...]:
    """The everyday ones unless any is given. Raises `Failure` for one that there is not: it would open nothing.

    `for_policies`: others than the house's own kinds may be given too, for policies of the organisation to speak of.
    """
    scopes = tuple(given or EVERYDAY)
    unknown = sorted(set(scopes) - SCOPES)
    if for_policies:
        unknown = [scope for scope in unknown if ":" not in scope or scope.startswith(_OURS)]
    if unknown:
        raise Failure(f"no scope is named {unknown[0]} (known: {', '.join(sorted(SCOPES))})", code=2)
    return scopes
