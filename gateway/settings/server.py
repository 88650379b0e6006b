"""Section `server`: addresses, timeouts and limits of the HTTP server."""

from pydantic import Field, IPvAnyNetwork

from gateway.settings.base import Section
from gateway.settings.values import Count, Port, Seconds, WebAddress, http_address


class ServerSettings(Section):
    """Addresses, timeouts and limits of the HTTP server."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(default=8080, description="Port to listen on; 0 selects a free port.")
    public_url: WebAddress = Field(
        default_factory=lambda data: http_address(data["host"], data["port"]),
        description="URL under which clients reach the gateway; by default derived from host and port.",
    )
    ops_port: Port | None = Field(
        default=None,
        description="Separate port for metrics, API and console, with health on both; by default all are on `port`.",
    )
    ops_public_url: WebAddress | None = Field(
        default=None,
        description="URL under which operators reach ops_port; by default derived from host and ops_port.",
    )
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted in addition to public_url.")
    allowed_origins: tuple[str, ...] = Field(default=(), description="Origins allowed to call the gateway (CORS).")
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        default=(), description="Networks of proxies whose forwarded headers are trusted."
    )
    max_body_bytes: Count = Field(default=4 * 1024 * 1024, description="Maximum size of a request body.")
    header_timeout: Seconds = Field(default=10, description="Timeout in seconds for receiving the request headers.")
    body_timeout: Seconds = Field(default=30, description="Timeout in seconds for receiving the request body.")
    min_body_rate: int = Field(
        default=1024, ge=0, description="Minimum rate of a request body, in bytes per second; slower ones are rejected."
    )
    idle_timeout: Seconds = Field(default=60, description="Seconds until an idle connection is closed.")
    write_timeout: Seconds = Field(default=30, description="Seconds until a client that does not read is disconnected.")
    max_connections: Count = Field(default=4096, description="Maximum open connections.")
    max_connections_per_ip: int = Field(
        default=1024, ge=0, description="Maximum open connections per IP address; 0 means no limit."
    )
    max_header_bytes: Count = Field(default=32768, description="Maximum total size of the request headers.")
    max_headers: Count = Field(default=100, description="Maximum number of request headers.")
    workers: Count = Field(default=1, description="Number of worker processes; more than one needs bus.url.")
    drain_grace: float = Field(
        default=0,
        ge=0,
        description="Seconds after SIGTERM in which /readyz fails but requests are accepted, for load balancers.",
    )
    drain_seconds: Seconds = Field(default=30, description="Seconds after SIGTERM for calls in progress to finish.")

    def public_url_at(self, port: int) -> str:
        """The public URL for the port that was bound, which differs from `port` if that is 0."""
        return self.public_url if "public_url" in self.model_fields_set else http_address(self.host, port)

    def operators_url(self, public_url: str) -> str:
        """The URL of the console and the operator API for a gateway with this public URL."""
        if self.ops_port is None:
            return public_url
        return self.ops_public_url or http_address(self.host, self.ops_port)
