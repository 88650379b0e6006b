"""Scopes as they are given to a command."""

from collections.abc import Iterable

from gateway.cli.failure import Failure
from gateway.contract.scopes import EVERYDAY, SCOPES


def checked_scopes(given: Iterable[str] | None) -> tuple[str, ...]:
    """The everyday ones unless any is given. Raises `Failure` for one that there is not: it would open nothing."""
    scopes = tuple(given or EVERYDAY)
    if unknown := sorted(set(scopes) - SCOPES):
        raise Failure(f"no scope is named {unknown[0]} (known: {', '.join(sorted(SCOPES))})", code=2)
    return scopes
