"""An exact vector scan with numpy. Import this module only off the event loop."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.contract.embedder import Vectors

_BATCH_ROWS: Final = 8_192
"""Rows compared at a time: bounds the memory for 32-bit copies of the 8-bit vectors."""
_MIN_CAPACITY: Final = 1_024


class VectorTable:
    """The vectors of one tenant, by entry number. `sequence` is that of the newest vector it contains.

    Not thread-safe: one call at a time.
    """

    def __init__(self) -> None:
        self.sequence = -1
        self._numbers: NDArray[np.int64] = np.empty(0, np.int64)
        self._codes: NDArray[np.int8] = np.empty((0, 0), np.int8)
        self._rows: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """Bytes of memory that the table takes."""
        # A dict entry of two integers takes about 100 bytes.
        return self._codes.nbytes + self._numbers.nbytes + 100 * len(self._rows)

    def put(self, found: list[tuple[int, int, bytes]]) -> None:
        """Add or replace vectors, given as (sequence, entry number, 8-bit vector)."""
        if not found:
            return
        self._reserve(len(self._rows) + len(found), len(found[0][2]))
        for sequence, number, code in found:
            row = self._rows.setdefault(number, len(self._rows))
            self._numbers[row] = number
            self._codes[row] = np.frombuffer(code, np.int8)
            self.sequence = max(self.sequence, sequence)

    def _reserve(self, rows: int, width: int) -> None:
        if rows <= len(self._numbers):
            return
        capacity = max(_MIN_CAPACITY, rows + rows // 4)
        numbers, codes = np.zeros(capacity, np.int64), np.zeros((capacity, width), np.int8)
        numbers[: len(self._rows)], codes[: len(self._rows)] = (
            self._numbers[: len(self._rows)],
            self._codes[: len(self._rows)] if len(self._rows) else codes[:0],
        )
        self._numbers, self._codes = numbers, codes

    def nearest(self, sought: Vectors, count: int, min_similarity: float) -> list[tuple[int, float]]:
        """Return up to `count` entry numbers with a cosine of at least `min_similarity`, the most similar first."""
        used = len(self._rows)
        return nearest(self._numbers[:used], self._codes[:used], sought, count, min_similarity)


def nearest(
    numbers: NDArray[np.int64], codes: NDArray[np.int8], sought: Vectors, count: int, min_similarity: float
) -> list[tuple[int, float]]:
    """Compare all vectors with the sought one, in batches."""
    best_numbers, best = np.empty(0, np.int64), np.empty(0, np.float32)
    scaled = sought / np.float32(127.0)
    for start in range(0, len(numbers), _BATCH_ROWS):
        batch = slice(start, start + _BATCH_ROWS)
        scores = codes[batch].astype(np.float32) @ scaled
        keep = scores >= min_similarity
        best_numbers, best = np.concatenate((best_numbers, numbers[batch][keep])), np.concatenate((best, scores[keep]))
        if len(best) > count:
            top = np.argpartition(-best, count - 1)[:count]
            best_numbers, best = best_numbers[top], best[top]
    order = np.lexsort((best_numbers, -best))
    return [(int(best_numbers[at]), round(min(float(best[at]), 1.0), 6)) for at in order]
