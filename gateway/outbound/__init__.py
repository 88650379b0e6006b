"""HTTP client for URLs that may come from untrusted sources. It protects against server-side request forgery.

The client validates the URL, resolves its host once, validates every address, and connects to one of these addresses.
The host is not resolved again, so DNS rebinding has no effect.
"""

from gateway.outbound.client import MAX_BYTES, create_client
from gateway.outbound.route import DIRECT, OutboundRoute, Proxy
from gateway.outbound.target import (
    OutboundTarget,
    Resolver,
    TrustedHosts,
    is_public,
    parse_target,
    resolve,
    resolve_blocking,
    system_resolver,
)

__all__ = [
    "DIRECT",
    "MAX_BYTES",
    "OutboundRoute",
    "OutboundTarget",
    "Proxy",
    "Resolver",
    "TrustedHosts",
    "create_client",
    "is_public",
    "parse_target",
    "resolve",
    "resolve_blocking",
    "system_resolver",
]
