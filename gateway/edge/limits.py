"""What one client may take of the server's time and memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """Times in seconds, sizes in bytes."""

    header_timeout: float = 10.0
    """From the first byte of a request to the end of its head; also for a new connection that says nothing."""
    body_timeout: float = 30.0
    min_body_rate: float = 500.0
    """Bytes per second, on average since the head, once `body_grace` is over."""
    body_grace: float = 5.0
    idle_timeout: float = 75.0
    """Between two requests of one connection."""
    write_timeout: float = 30.0
    """How long a client may leave its answer unread."""
    linger: float = 2.0
    """How long a refused client may go on sending, so that it finds the answer before its connection breaks."""
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    max_body_bytes: int = 4 * 1024 * 1024
    max_connections: int = 10_000
    max_connections_per_address: int = 1_024
    """0: as many as there may be in all."""
