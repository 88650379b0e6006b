"""The types that describe how a tool call becomes an HTTP request: `Operation`, `Parameter` and `RequestBody`.

`operations` builds them from a document; `requests` and `responses` use them for each call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.contract import Json

Location = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "form", "multipart", "binary", "text"]

DIGEST_KEYWORD: Final = "$comment"
"""Where the input schema of a tool contains the digest of its request. Pins cover the schema, so a change of how
arguments are sent does not pass as the same definition."""

BODY: Final = "body"
"""The argument that holds the request body."""

EFFECTS: Final[Mapping[str, int]] = {"get": 0, "post": 2, "put": 2, "patch": 2, "delete": 3}
"""The methods that become tools, each with its effect. HEAD, OPTIONS and TRACE return nothing of use to a model."""

ANNOTATIONS: Final[Mapping[str, Json]] = {
    "get": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True},
    "post": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True},
    "put": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True},
    "patch": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    "delete": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": True},
}

RESERVED_HEADERS: Final = frozenset(
    {
        *("authorization", "cookie", "host", "proxy-authorization", "proxy-authenticate", "proxy-connection"),
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "http2-settings"),
        *("content-length", "content-type", "content-encoding", "accept", "accept-encoding", "user-agent"),
        *("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port"),
        *("x-forwarded-user", "x-forwarded-email", "x-forwarded-groups", "x-remote-user", "x-real-ip"),
        *("x-original-url", "x-rewrite-url", "x-http-method-override", "x-http-method", "x-method-override"),
        *("x-correlation-id", "traceparent", "tracestate", "baggage"),
    }
)
"""Headers that are never arguments: credentials, hop-by-hop headers, and headers that the gateway or a proxy sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter, and the argument that holds its value."""

    argument: str
    name: str
    """Name in the request."""
    location: Location
    style: str
    explode: bool
    allow_reserved: bool = False
    as_json: bool = False
    """Whether the value is sent as JSON text, because the document gives it a media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyEncoding:
    """How one property of a form is sent."""

    style: str | None = None
    """None: arrays as repeated names, objects as JSON."""
    explode: bool = True
    media_type: str | None = None
    """Media type of the part, in a multipart body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """The body of an operation, from the argument `body`."""

    kind: BodyKind
    media_type: str
    encodings: Mapping[str, PropertyEncoding] = field(default_factory=dict[str, PropertyEncoding])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an API."""

    name: str
    """Name of the tool."""
    method: str
    """In upper case."""
    path: str
    """Template below the address of the API, such as `/pets/{petId}`; its literal parts are ready to send."""
    parameters: tuple[Parameter, ...]
    body: RequestBody | None
    accept: str
    reserved_query: frozenset[str]
    """Query names that an exploded object must not contain: other parameters, and those of security schemes."""
    output_schema: Json | None = None
    digest: str = ""
    """Digest of method, path and the places of all arguments; the definition of the tool contains it."""
