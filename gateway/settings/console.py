"""`console:`, the operator's page."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.settings.section import Section

_WHO = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/(user|service|group):[^\s/]{1,256}", re.ASCII)


def _who(given: str) -> str:
    if not _WHO.fullmatch(given):
        raise ValueError("expected a person or group such as default/user:alice or default/group:platform")
    return given


def _trace_url(given: str | None) -> str | None:
    if given is None:
        return None
    parts = urlsplit(given.replace("{trace_id}", "0"))
    if "{trace_id}" not in given or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as https://jaeger.example.org/trace/{trace_id}")
    return given


class Console(Section):
    """The operator's page at /console."""

    enabled: bool = Field(default=True, description="Whether the console is served.")

    organisation: tuple[Annotated[str, AfterValidator(_who)], ...] = Field(
        default=(),
        description="Who sees every tenant with the scope mcp:admin, such as default/user:alice or "
        "default/group:platform; others see their own, and the owner of the only machine that is served sees all.",
    )
    trace_url: Annotated[str | None, AfterValidator(_trace_url)] = Field(
        default=None, description="Where a trace is shown elsewhere, with {trace_id} in it; no link unless given."
    )
    client_id: str = Field(
        default="", description="Client that the console is at your identity provider, for auth.mode external."
    )
    client_secret: SecretStr | None = Field(default=None, description="Its secret, if it has one.")
    client_secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    asks_for: tuple[str, ...] = Field(
        default=("mcp:admin",), min_length=1, description="Scopes that the console asks your identity provider for."
    )
