"""Who a command is to an authorization server, as far as its user says so."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Program:
    """With nothing given it registers itself."""

    id: str | None = None
    """The client as an operator has registered it there."""
    secret: str | None = field(default=None, repr=False)
    document: str | None = None
    """Where a client document (CIMD) of it lies, which is then its id wherever such are known."""
    port: int = 0
    """Where the browser comes back to, on this machine; 0 is any that is free."""

    def problem(self) -> str:
        """What cannot be meant, in words for the user."""
        parts = urlsplit(self.document or "https://example.org/client.json")
        if self.id is not None and self.document is not None:
            return "give --client-id or --client-document, not both"
        if self.secret is not None and self.id is None:
            return "--client-secret needs --client-id"
        if parts.scheme != "https" or parts.path in ("", "/"):
            return "--client-document is an https address with a path"
        return ""
