"""How long sessions last, of the gateway's clients and of the gateway itself with remote servers."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.telemetry.metric_families import SECONDS, Histogram, Labels

SILENT_SECONDS: Final = 300.0
_MOST: Final = 100_000
_LOOK_EVERY: Final = 1_000


class SessionDurations:
    """A session of which nothing was heard for five minutes has ended with what was heard last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._began: dict[str, tuple[float, Labels]] = {}
        self._lasted: dict[Labels, Histogram] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def seen(self, session: str) -> bool:
        """Something was heard of it; false if it is a new one, which has to `begin`."""
        if session not in self._heard:
            return False
        self._heard[session] = self._clock()
        return True

    def begin(self, session: str, about: Labels) -> None:
        if len(self._heard) % _LOOK_EVERY == 0:
            self.lasted()  # also where nobody ever asks, those that ended are let go
        if len(self._heard) < _MOST:
            now = self._heard[session] = self._clock()
            self._began[session] = (now, about)

    def lasted(self) -> Mapping[Labels, Histogram]:
        """Of the sessions that have ended."""
        oldest = self._clock() - SILENT_SECONDS
        for session in [session for session, at in self._heard.items() if at <= oldest]:
            last, (began, about) = self._heard.pop(session), self._began.pop(session)
            if (times := self._lasted.get(about)) is None:
                times = self._lasted[about] = Histogram(SECONDS)
            times.observe(last - began)
        return self._lasted
