"""How a backend is, as operators are shown it.

How it is said that something cannot be served.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from gateway.contract import Json

State = Literal["unknown", "up", "failing", "down"]

"""Not yet asked; its last answer came; its last call failed; failed so often that it is left alone for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamHealth:
    """A moment's facts; nothing in it tells of a call's content."""

    state: State
    transport: Literal["module", "http", "sse", "stdio"]
    eras: tuple[str, ...] = ()
    """Which it speaks, of `modern` and `handshake`; empty while that is not known."""
    breaker: Literal["closed", "open", "half-open"] = "closed"
    in_flight: int = 0
    waiting: int = 0
    last_error: str | None = None
    """The kind of the last failure, whether or not it has recovered since."""
    last_error_at: float | None = None
    """Unix time."""
    since: float
    """Unix time at which `state` began."""

    def as_json(self) -> Json:
        return asdict(self)


class LoadError(Exception):
    """What cannot be served, and why: one line that begins with the setting it is about, such as `backends.x.url: `."""

    @property
    def at(self) -> tuple[str, ...]:
        """That setting, part by part."""
        return tuple(str(self).partition(": ")[0].split("."))
