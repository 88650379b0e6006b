"""Sliding rate-limit windows in memory. The limit stage uses them; `redis_windows` shares them between processes.

A window never admits more than its amount in any span of its length. Charges within 1/600 of the length share one
entry, which bounds the memory per key; they expire together, up to that much late. A charge takes about 1 µs per limit,
against 7 µs with the `limits` library.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

STEPS: Final = 600


class WindowCharge(NamedTuple):
    """The charge of one limit for a call: take `weight` of the key's `amount` per `seconds`."""

    key: str
    amount: float
    seconds: float
    weight: float = 1.0


class Shortfall(NamedTuple):
    """A refused charge: its index among the charges, and the seconds until it would fit."""

    charge_index: int
    wait: float


class RateWindow:
    """The sliding window of one key."""

    __slots__ = ("__weakref__", "amount", "entries", "seconds", "step", "total")

    def __init__(self, amount: float, seconds: float) -> None:
        self.amount = amount
        self.seconds = seconds
        self.step = seconds / STEPS
        self.total = 0.0
        self.entries: deque[list[float]] = deque()
        """[time of the last charge, weight, time of the first charge], oldest first."""

    def expire(self, now: float) -> None:
        entries, cutoff = self.entries, now - self.seconds
        while entries and entries[0][0] <= cutoff:
            self.total -= entries.popleft()[1]
        if not entries:
            self.total = 0.0  # discards accumulated rounding errors

    def take(self, now: float, weight: float) -> None:
        entries = self.entries
        self.total += weight
        if entries and now - entries[-1][2] < self.step:
            last = entries[-1]
            last[0] = now
            last[1] += weight
        else:
            entries.append([now, weight, now])

    def seconds_until_free(self, now: float, weight: float) -> float:
        """Return the seconds until `weight` fits if nothing else is charged. The weight is capped at the amount."""
        surplus = self.total + min(weight, self.amount) - self.amount
        for stamp, held, _ in self.entries:
            surplus -= held
            if surplus <= 1e-9:
                return max(stamp + self.seconds - now, 0.001)
        return 0.001


class CallCharges:
    """The charges of one kind of call, resolved to windows once and then reused for each call."""

    __slots__ = ("charges", "keys", "windows")

    def __init__(self, charges: Sequence[WindowCharge], windows: Sequence[RateWindow]) -> None:
        self.charges = tuple(charges)
        self.keys = tuple(charge.key for charge in charges)
        self.windows = tuple((window, charge.weight) for window, charge in zip(windows, charges, strict=True))

    def take(self, now: float) -> Shortfall | None:
        """Make all charges, or none. Returns the charge that did not fit."""
        windows = self.windows
        for window, weight in windows:
            entries = window.entries
            if entries and entries[0][0] <= now - window.seconds:
                window.expire(now)
            if window.total + weight > window.amount:
                return self._shortfall(now)
        for window, weight in windows:
            window.take(now, weight)
        return None

    def add(self, now: float) -> None:
        """Charge an amount that is known only after the call. Later calls wait for it."""
        for window, weight in self.windows:
            window.take(now, weight)

    def is_idle(self, now: float) -> bool:
        """Whether no charge is pending in any of the windows."""
        for window, _ in self.windows:
            window.expire(now)
        return not any(window.entries for window, _ in self.windows)

    def _shortfall(self, now: float) -> Shortfall:
        """Return the refused charge with the longest wait."""
        waits = [
            (window.seconds_until_free(now, weight), index)
            for index, (window, weight) in enumerate(self.windows)
            if window.total + weight > window.amount
        ]
        wait, index = max(waits)
        return Shortfall(index, wait)


class MemoryWindows:
    """The windows of one process. All `CallCharges` with the same key share its window."""

    def __init__(self) -> None:
        self._windows: WeakValueDictionary[str, RateWindow] = WeakValueDictionary()

    def prepare(self, charges: Sequence[WindowCharge]) -> CallCharges:
        """Resolve charges to their windows."""
        return CallCharges(charges, [self._window(charge) for charge in charges])

    def _window(self, charge: WindowCharge) -> RateWindow:
        window = self._windows.get(charge.key)
        if window is None:
            window = self._windows[charge.key] = RateWindow(charge.amount, charge.seconds)
        return window
