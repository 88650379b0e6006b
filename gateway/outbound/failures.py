"""What goes wrong on the way out, as faults."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio
import httpcore
import httpx

from gateway.errors import Fault, Kind

# The httpx names are what a stand-in for the far side raises; the last two are what httpx makes of a Location that it
# cannot read.
_FAILURES: Final[Mapping[type[Exception], tuple[Kind, str]]] = {
    httpcore.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpx.TimeoutException: (Kind.TIMEOUT, "{} did not answer in time."),
    httpcore.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpx.NetworkError: (Kind.UNAVAILABLE, "{} cannot be reached."),
    httpcore.LocalProtocolError: (Kind.INTERNAL, "The request to {} could not be written."),
    httpcore.RemoteProtocolError: (Kind.UNAVAILABLE, "{} broke the rules of HTTP."),
    httpx.RemoteProtocolError: (Kind.UNAVAILABLE, "{} broke the rules of HTTP."),
    httpx.InvalidURL: (Kind.UNAVAILABLE, "{} redirects to what is not a URL."),
    UnicodeError: (Kind.UNAVAILABLE, "{} redirects to what is not a URL."),
}


@contextmanager
def translated(host: str, deadline: float = float("inf")) -> Generator[None]:
    try:
        with anyio.CancelScope(deadline=deadline) as scope:
            yield
    except tuple(_FAILURES) as exc:
        kind, words = next(row for failure, row in _FAILURES.items() if isinstance(exc, failure))
        raise Fault(kind, words.format(host)) from exc
    if scope.cancelled_caught:
        raise Fault(Kind.TIMEOUT, f"{host} did not answer in time.")
