"""Types that report the condition of backends: `UpstreamHealth` for operators, `LoadError` for settings."""

from dataclasses import asdict, dataclass
from typing import Literal

from gateway.contract import Json
from gateway.errors import Fault, Kind

State = Literal["unknown", "up", "failing", "down"]
"""`unknown`: no request yet. `up`: the last request succeeded. `failing`: it failed. `down`: the breaker is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamHealth:
    """Snapshot of a backend's condition. Contains nothing of the content of calls."""

    state: State
    transport: Literal["module", "http", "sse", "stdio", "openapi"]
    eras: tuple[str, ...] = ()
    """The supported eras, `modern` and `handshake`; empty while unknown."""
    breaker: Literal["closed", "open", "half-open"] = "closed"
    """Of the address: it concerns all tenants."""
    open_tenant_breakers: int = 0
    """Number of tenants whose own breaker is open."""
    in_flight: int = 0
    waiting: int = 0
    last_error: str | None = None
    """The kind of the last failure, also after a recovery."""
    last_error_at: float | None = None
    """Unix time."""
    since: float
    """Unix time at which `state` began."""

    def as_json(self) -> Json:
        return asdict(self)


class LoadError(Exception):
    """A backend cannot be loaded. The message is one line that starts with the setting, such as `backends.x.url: `."""

    @property
    def setting_path(self) -> tuple[str, ...]:
        """The setting that the message starts with, split at the dots."""
        return tuple(str(self).partition(": ")[0].split("."))


class UpstreamCredentialRejected(Fault):
    """The server rejected the credential of a request."""

    def __init__(self, name: str) -> None:
        super().__init__(Kind.UNAVAILABLE, f"{name} rejected the gateway's credential.", retryable=False)
