"""The way out: the egress proxy and the certificate authorities that outgoing connections use.

The wiring builds one `OutboundRoute` from `outbound:` and passes it to every client. A proxied connection is a tunnel
(CONNECT) to the host name, so TLS is verified end to end.
"""

import asyncio
import os
import socket
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpcore
import httpx

from gateway.errors import Fault, Kind
from gateway.outbound.target import Resolver, require_public

MAX_HEAD_BYTES: Final = 16 * 1024
_READ_BYTES: Final = 4096
_PRIVATE_SUFFIXES: Final = (".local", ".internal", ".localhost", ".lan", ".home.arpa")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that opens tunnels. `repr` does not show its password."""

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)
    """User name and password, separated by a colon."""

    @classmethod
    def parse(cls, url: str) -> "Proxy":
        """Parse `http://[user:password@]host:port`. Raises `ValueError`."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ValueError("expected an address such as http://proxy.example.org:3128")
        credentials = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return cls(parts.hostname, parts.port or 3128, credentials)

    @property
    def url(self) -> str:
        """The URL of the proxy, with its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user, _, password = (self.credentials or "").partition(":")
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if self.credentials is not None else ""
        return f"http://{login}{host}:{self.port}"

    def connect_request(self, host: str, port: int) -> bytes:
        """Encode the request that opens a tunnel."""
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", "User-Agent: gatehouse"]
        if self.credentials is not None:
            lines.append(f"Proxy-Authorization: Basic {b64encode(self.credentials.encode()).decode()}")
        return "\r\n".join((*lines, "", "")).encode("latin-1")


@dataclass(frozen=True, slots=True)
class OutboundRoute:
    """How outgoing connections leave: directly, or through `proxy` except to the hosts of `no_proxy`."""

    proxy: Proxy | None = None
    no_proxy: tuple[str, ...] = ()
    """Host names, which include their subdomains, addresses, networks, or `*`."""
    ca_file: Path | None = None
    """Certificate authorities in addition to those of the system."""

    def proxy_for(self, host: str) -> Proxy | None:
        """The proxy for connections to this host. Loopback is always reached directly."""
        if self.proxy is None or host == "localhost" or any(_matches(host, entry) for entry in self.no_proxy):
            return None
        try:
            return None if ip_address(host).is_loopback else self.proxy
        except ValueError:
            return self.proxy

    def tls(self, ca_file: Path | None = None) -> ssl.SSLContext:
        """The TLS settings of a client: system authorities, those of `outbound.ca_file`, and those of `ca_file`."""
        files = tuple(str(path) for path in (self.ca_file, ca_file) if path is not None)
        return _ssl_context(files, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


DIRECT: Final = OutboundRoute()


@lru_cache(maxsize=16)
def _ssl_context(files: tuple[str, ...], system_file: str | None, system_folder: str | None) -> ssl.SSLContext:
    """Load the certificate authorities once for all clients, because loading them is slow."""
    context = httpx.create_ssl_context()
    for file in files:
        context.load_verify_locations(file)
    return context


def _matches(host: str, entry: str) -> bool:
    pattern = entry.strip().lower().removeprefix("*.").lstrip(".")
    if entry == "*" or host == pattern or host.endswith(f".{pattern}"):
        return True
    try:
        return ip_address(host) in ip_network(pattern, strict=False)
    except ValueError:
        return False


async def check_proxied_host(host: str, port: int, is_trusted: bool, resolver: Resolver) -> None:
    """Check a host that the proxy will resolve. Raises `Fault(DENIED)` if it is private.

    In many networks only the proxy can resolve public names; a name that this machine cannot resolve is left to it.
    """
    if is_trusted:
        return
    try:
        addresses = [str(ip_address(host))]
    except ValueError:
        try:
            addresses = list(await resolver(host, port))
        except OSError:
            addresses = []
    if addresses:
        require_public(host, addresses)
    elif "." not in host or host.endswith(_PRIVATE_SUFFIXES):
        raise Fault(Kind.DENIED, f"{host} is not on the public internet.")


def parse_connect_response(data: bytes) -> bool:
    """Whether the head of the proxy's response is complete. Raises `ConnectionError` if it refuses the tunnel."""
    if b"\r\n\r\n" not in data:
        if len(data) > MAX_HEAD_BYTES:
            raise ConnectionError("the proxy sent an invalid response")
        return False
    status = data.split(b" ", 2)[1:2]
    if not data.startswith(b"HTTP/1.") or status != [b"200"]:
        code = status[0].decode("ascii", "replace")[:3] if status else "?"
        raise ConnectionError(f"the proxy refused the tunnel with HTTP {code}")
    if not data.endswith(b"\r\n\r\n"):
        raise ConnectionError("the proxy sent data before the tunnel was open")
    return True


async def open_tunnel_socket(proxy: Proxy, host: str, port: int) -> socket.socket:
    """Open a tunnel and return its socket. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM))[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(opened, address)
        await loop.sock_sendall(opened, proxy.connect_request(host, port))
        received = b""
        while not parse_connect_response(received):
            chunk = await loop.sock_recv(opened, _READ_BYTES)
            if not chunk:
                raise ConnectionError("the proxy closed the connection")
            received += chunk
    except BaseException:
        opened.close()
        raise
    return opened


async def open_tunnel_stream(
    network: httpcore.AsyncNetworkBackend, proxy: Proxy, host: str, port: int, timeout: float | None
) -> httpcore.AsyncNetworkStream:
    """Open a tunnel for httpcore. Raises `httpcore.ConnectError`."""
    stream = await network.connect_tcp(proxy.host, proxy.port, timeout)
    try:
        await stream.write(proxy.connect_request(host, port), timeout)
        received = b""
        while not parse_connect_response(received):
            chunk = await stream.read(_READ_BYTES, timeout)
            if not chunk:
                raise ConnectionError("the proxy closed the connection")
            received += chunk
    except ConnectionError as exc:
        await stream.aclose()
        raise httpcore.ConnectError(str(exc)) from exc
    except BaseException:
        await stream.aclose()
        raise
    return stream
