"""From an entry with a `url:` to the way to its server."""

import ssl
from collections.abc import Mapping

from gateway.contract import Json
from gateway.errors import Fault
from gateway.outbound import Target, target
from gateway.upstream.http.head import Head
from gateway.upstream.http.legacy import LegacyHttp
from gateway.upstream.http.link import HttpLink
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.http.pool import Pool
from gateway.upstream.http.site import Credential, Site
from gateway.upstream.http.sse import SseHttp
from gateway.upstream.refusal import LoadError


def http_head(namespace: str, url: str, headers: Mapping[str, str], *, allow_private: bool) -> tuple[Target, Head]:
    """Where requests go and what each of them begins with. Raises `LoadError`."""
    try:
        there = target(url, allow_private=allow_private)
        return there, Head(there, headers)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.url: {fault.message}") from fault
    except ValueError as exc:
        raise LoadError(f"backends.{namespace}.headers: {exc}") from exc


def http_link(
    namespace: str,
    url: str,
    headers: Mapping[str, str],
    *,
    only_sse: bool,
    allow_private: bool,
    max_bytes: int,
    info: Json,
    credential: Credential | None = None,
) -> HttpLink:
    """Raises `LoadError` for an address or a header that cannot be used."""
    there, head = http_head(namespace, url, headers, allow_private=allow_private)
    tls = ssl.create_default_context() if there.scheme == "https" else None
    site = Site(Pool(namespace, there, max_bytes=max_bytes, tls=tls), head, credential)
    streamable = None if only_sse else LegacyHttp(namespace, site, max_bytes, info)
    older = SseHttp(namespace, site, there, max_bytes, info)
    return HttpLink(
        namespace, site, ModernHttp(namespace, site, max_bytes), streamable, older, info, (there.host, there.port)
    )
