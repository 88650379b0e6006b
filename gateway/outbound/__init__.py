"""The one HTTP client for addresses that somebody else may have chosen.

A URL is judged, its name looked up once, every address judged, and the connection goes to such an address: a name that
answers differently the second time is never asked a second time.
"""

from gateway.outbound.client import MAX_BYTES, client
from gateway.outbound.target import (
    OutboundTarget,
    Resolver,
    Vouched,
    is_public,
    look_up,
    resolve,
    system_resolver,
    target,
)

__all__ = [
    "MAX_BYTES",
    "OutboundTarget",
    "Resolver",
    "Vouched",
    "client",
    "is_public",
    "look_up",
    "resolve",
    "system_resolver",
    "target",
]
