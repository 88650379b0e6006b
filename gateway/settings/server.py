"""`server:`, where and how the gateway listens."""

from pydantic import Field, IPvAnyNetwork

from gateway.settings.base import Section
from gateway.settings.values import Count, Port, Seconds, WebAddress, http_address


class ServerSettings(Section):
    """Where and how the gateway listens."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Port = Field(default=8080, description="Port to listen on; 0 takes any free one.")
    public_url: WebAddress = Field(
        default_factory=lambda data: http_address(data["host"], data["port"]),
        description="Address that clients reach the gateway by; derived from host and port unless given.",
    )
    ops_port: Port | None = Field(
        default=None,
        description="Port for operators: metrics, API and console on it alone, health on both; none: all on `port`.",
    )
    ops_public_url: WebAddress | None = Field(
        default=None,
        description="Address that operators reach ops_port by; derived from host and ops_port unless given.",
    )
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted beside those of public_url.")
    allowed_origins: tuple[str, ...] = Field(default=(), description="Origins whose pages may call the gateway.")
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        default=(), description="Networks whose forwarded headers are believed."
    )
    max_body_bytes: Count = Field(default=4 * 1024 * 1024, description="Largest request body.")
    header_timeout: Seconds = Field(default=10, description="Seconds a client may take to send its headers.")
    body_timeout: Seconds = Field(default=30, description="Seconds a client may take to send its body.")
    min_body_rate: int = Field(default=1024, ge=0, description="Bytes a second below which a body is cut off.")
    idle_timeout: Seconds = Field(default=60, description="Seconds an unused connection stays open.")
    write_timeout: Seconds = Field(default=30, description="Seconds a client may leave an answer unread.")
    max_connections: Count = Field(default=4096, description="Connections open at one time.")
    max_connections_per_ip: int = Field(default=1024, ge=0, description="Connections from one address; 0 is no limit.")
    max_header_bytes: Count = Field(default=32768, description="Size of all headers of a request together.")
    max_headers: Count = Field(default=100, description="Number of headers of a request.")
    workers: Count = Field(default=1, description="Processes that serve; more than one need bus.url.")
    drain_grace: float = Field(
        default=0,
        ge=0,
        description="Seconds between SIGTERM, when /readyz fails, and the end of listening: what a balancer needs.",
    )
    drain_seconds: Seconds = Field(default=30, description="Seconds that calls under way have after SIGTERM.")

    def public_url_at(self, port: int) -> str:
        """The public address once the port is known that was bound for port 0."""
        return self.public_url if "public_url" in self.model_fields_set else http_address(self.host, port)

    def operators_url(self, public_url: str) -> str:
        """The address of the console and the operator API, for a gateway with this public address."""
        if self.ops_port is None:
            return public_url
        return self.ops_public_url or http_address(self.host, self.ops_port)
