"""What tells the processes of one server apart."""

from typing import NamedTuple

from gateway.upstream.remote import Era


class Key(NamedTuple):
    """One process: whose it is, and how it was opened."""

    whose: str
    """A tenant or a principal; empty: everybody's."""
    era: Era
    able: frozenset[str] = frozenset()
    """Greeted once in the handshake era, a process knows its client for good: one for each kind of client."""
