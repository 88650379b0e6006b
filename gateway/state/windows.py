"""Moving windows in this process's memory: how much was taken in the last so many seconds, exactly, for each key.

Our own arithmetic: the library's takes seven microseconds a limit, this about one. A window never admits more than its
amount in any span of its length; what it has taken comes back at most a six-hundredth of that length late, which bounds
what is remembered of one key however high its limit.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

STEPS: Final = 600


class WindowCharge(NamedTuple):
    """What one limit says of a call: take `weight` of the key's `amount` in `seconds`."""

    key: str
    amount: float
    seconds: float
    weight: float = 1.0


class Shortfall(NamedTuple):
    """A refusal: which of the charges could not be made, and for how long."""

    which: int
    wait: float


class RateWindow:
    __slots__ = ("__weakref__", "amount", "entries", "seconds", "step", "total")

    def __init__(self, amount: float, seconds: float) -> None:
        self.amount = amount
        self.seconds = seconds
        self.step = seconds / STEPS
        self.total = 0.0
        self.entries: deque[list[float]] = deque()
        """[when the last of it was taken, how much, when the first of it was], oldest first."""

    def expire(self, now: float) -> None:
        entries, past = self.entries, now - self.seconds
        while entries and entries[0][0] <= past:
            self.total -= entries.popleft()[1]
        if not entries:
            self.total = 0.0  # no rounding error outlives what it came from

    def take(self, now: float, weight: float) -> None:
        entries = self.entries
        self.total += weight
        if entries and now - entries[-1][2] < self.step:
            last = entries[-1]
            last[0] = now
            last[1] += weight
        else:
            entries.append([now, weight, now])

    def wait(self, now: float, weight: float) -> float:
        """Seconds until there is room for so much, if nobody else takes it; as much as will ever be, for more."""
        surplus = self.total + min(weight, self.amount) - self.amount
        for stamp, held, _ in self.entries:
            surplus -= held
            if surplus <= 1e-9:
                return max(stamp + self.seconds - now, 0.001)
        return 0.001


class CallCharges:
    """The charges of one kind of call, made again and again: found once, then only added up."""

    __slots__ = ("charges", "keys", "windows")

    def __init__(self, charges: Sequence[WindowCharge], windows: Sequence[RateWindow]) -> None:
        self.charges = tuple(charges)
        self.keys = tuple(charge.key for charge in charges)
        self.windows = tuple((window, charge.weight) for window, charge in zip(windows, charges, strict=True))

    def take(self, now: float) -> Shortfall | None:
        """Make all the charges, or none and say why."""
        windows = self.windows
        for window, weight in windows:
            entries = window.entries
            if entries and entries[0][0] <= now - window.seconds:
                window.expire(now)
            if window.total + weight > window.amount:
                return self._short(now)
        for window, weight in windows:
            window.take(now, weight)
        return None

    def add(self, now: float) -> None:
        """Charge what is known only afterwards: the next calls wait for it."""
        for window, weight in self.windows:
            window.take(now, weight)

    def idle(self, now: float) -> bool:
        """Whether nothing would be forgotten with it."""
        for window, _ in self.windows:
            window.expire(now)
        return not any(window.entries for window, _ in self.windows)

    def _short(self, now: float) -> Shortfall:
        """The limit that lets nobody in for longest."""
        waits = [
            (window.wait(now, weight), index)
            for index, (window, weight) in enumerate(self.windows)
            if window.total + weight > window.amount
        ]
        wait, index = max(waits)
        return Shortfall(index, wait)


class MemoryWindows:
    """The windows of one process. A key's window is one, whichever bills have it on them."""

    def __init__(self) -> None:
        self._windows: WeakValueDictionary[str, RateWindow] = WeakValueDictionary()

    def bill(self, charges: Sequence[WindowCharge]) -> CallCharges:
        return CallCharges(charges, [self._window(charge) for charge in charges])

    def _window(self, charge: WindowCharge) -> RateWindow:
        window = self._windows.get(charge.key)
        if window is None:
            window = self._windows[charge.key] = RateWindow(charge.amount, charge.seconds)
        return window
