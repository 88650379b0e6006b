"""From an entry with a `url:` to a backend."""

import ssl
from collections.abc import Mapping

from gateway.contract import Json, Manifest
from gateway.errors import Fault
from gateway.outbound import target
from gateway.upstream.http.head import Head
from gateway.upstream.http.legacy import LegacyHttp
from gateway.upstream.http.link import HttpLink
from gateway.upstream.http.modern import ModernHttp
from gateway.upstream.http.pool import Pool
from gateway.upstream.load import LoadError
from gateway.upstream.remote import RemoteBackend


def http_backend(
    namespace: str,
    url: str,
    headers: Mapping[str, str],
    manifest: Manifest,
    *,
    allow_private: bool,
    max_bytes: int,
    info: Json,
    max_connections: int = 64,
    max_waiting: int = 256,
) -> RemoteBackend:
    """Raises `LoadError` for an address or a header that cannot be used."""
    try:
        there = target(url, allow_private=allow_private)
        head = Head(there, headers)
    except Fault as fault:
        raise LoadError(f"backends.{namespace}.url: {fault.message}") from fault
    except ValueError as exc:
        raise LoadError(f"backends.{namespace}.headers: {exc}") from exc
    tls = ssl.create_default_context() if there.scheme == "https" else None
    pool = Pool(
        namespace, there, max_connections=max_connections, max_waiting=max_waiting, max_bytes=max_bytes, tls=tls
    )
    modern = ModernHttp(namespace, pool, head, max_bytes)
    handshake = LegacyHttp(namespace, pool, head, max_bytes, info)
    return RemoteBackend(namespace, manifest, HttpLink(modern, handshake, info, pool.close), info)
