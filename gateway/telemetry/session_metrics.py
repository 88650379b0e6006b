"""Durations of sessions: of clients at the gateway, and of the gateway at remote servers."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.telemetry.metric_families import DURATION_BUCKETS, Histogram, Labels

IDLE_SECONDS: Final = 300.0
_MAX_SESSIONS: Final = 100_000
_SWEEP_EVERY: Final = 1_000


class SessionDurations:
    """Tracks active sessions. A session without activity for five minutes has ended at its last activity."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_seen: dict[str, float] = {}
        self._started: dict[str, tuple[float, Labels]] = {}
        self._durations: dict[Labels, Histogram] = {}

    def __len__(self) -> int:
        return len(self._last_seen)

    def touch(self, session: str) -> bool:
        """Record activity of a session. Returns False for an unknown session; call `begin` for it."""
        if session not in self._last_seen:
            return False
        self._last_seen[session] = self._clock()
        return True

    def begin(self, session: str, labels: Labels) -> None:
        if len(self._last_seen) % _SWEEP_EVERY == 0:
            self.collect()  # removes ended sessions even when the metrics are never read
        if len(self._last_seen) < _MAX_SESSIONS:
            now = self._last_seen[session] = self._clock()
            self._started[session] = (now, labels)

    def collect(self) -> Mapping[Labels, Histogram]:
        """Return the durations of the ended sessions, by labels."""
        cutoff = self._clock() - IDLE_SECONDS
        for session in [session for session, at in self._last_seen.items() if at <= cutoff]:
            last_seen, (started, labels) = self._last_seen.pop(session), self._started.pop(session)
            if (durations := self._durations.get(labels)) is None:
                durations = self._durations[labels] = Histogram(DURATION_BUCKETS)
            durations.observe(last_seen - started)
        return self._durations
