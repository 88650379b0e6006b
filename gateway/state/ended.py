"""Which sessions are over: a set of names that costs some thirty bytes each, for there may be very many."""

from array import array
from collections.abc import Callable
from typing import Final

_BITS: Final = (1 << 64) - 1
_ROOM: Final = 64


class Ended:
    """The newest `most` names, each until it expires.

    Of a name only its hash of 64 bits is held: among 100,000 of them, another is taken for one with odds of 1 in 10^14.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        # In the order they came. What is no longer held stays in place until the table is made anew.
        self._marks = array("Q")
        self._expires = array("d")
        self._table = _empty(_ROOM)
        """Open addressing: where a mark is in `_marks`, counted from one; 0 is a free place."""

    def add(self, name: str, expires: float) -> None:
        if 2 * len(self._marks) >= len(self._table):
            self._renew()
        self._put(hash(name) & _BITS, expires)

    def __contains__(self, name: str) -> bool:
        mark, table = hash(name) & _BITS, self._table
        last = len(table) - 1
        place = mark & last
        while at := table[place]:
            if self._marks[at - 1] == mark and self._holds(at - 1):
                return True
            place = place + 1 & last
        return False

    def _holds(self, at: int) -> bool:
        return at >= len(self._marks) - self._most and self._expires[at] > self._clock()

    def _put(self, mark: int, expires: float) -> None:
        self._marks.append(mark)
        self._expires.append(expires)
        last = len(self._table) - 1
        place = mark & last
        while self._table[place]:
            place = place + 1 & last
        self._table[place] = len(self._marks)

    def _renew(self) -> None:
        """With room for as many again as are held."""
        held = array("I", (at for at in range(len(self._marks)) if self._holds(at)))
        marks, expires = self._marks, self._expires
        self._marks, self._expires = array("Q"), array("d")
        self._table = _empty(max(_ROOM, 1 << (4 * len(held)).bit_length()))
        for at in held:
            self._put(marks[at], expires[at])


def _empty(places: int) -> "array[int]":
    """A power of two of them."""
    return array("I", bytes(4 * places))
