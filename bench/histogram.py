"""Latency histogram with buckets less than one percent wide, from nanoseconds to hours, in constant memory."""

_BITS = 7
_SIZE = (64 - _BITS) << _BITS


class Histogram:
    """Counts of durations. A percentile is exact to within half a bucket, 0.4 %."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * _SIZE

    def add(self, nanoseconds: int) -> None:
        shift = nanoseconds.bit_length() - _BITS - 1
        if shift < 0:
            self.counts[nanoseconds] += 1
        else:
            self.counts[(shift << _BITS) + (nanoseconds >> shift)] += 1

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile(self, share: float) -> float:
        """Return the percentile of `share` (0 to 1) in nanoseconds; 0 when the histogram is empty."""
        wanted = share * self.total
        seen = 0
        for index, count in enumerate(self.counts):
            seen += count
            if count and seen >= wanted:
                return _middle(index)
        return 0.0


def _middle(index: int) -> float:
    if index < 2 << _BITS:
        return float(index)
    shift = (index >> _BITS) - 1
    return ((index - (shift << _BITS)) << shift) + (1 << shift) / 2
