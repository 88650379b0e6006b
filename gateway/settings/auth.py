"""`auth:`, who may call and how they get what they call with."""

from typing import Literal

from pydantic import Field

from gateway.settings.section import Section
from gateway.settings.values import Scope

_EVERYDAY = ("mcp:list", "mcp:call", "mcp:call:write")


class Auth(Section):
    """Who may call."""

    mode: Literal["embedded", "external", "none"] = Field(
        default="embedded",
        description="Keys and tokens of our own, tokens of an identity provider, or nobody is asked.",
    )
    scopes: tuple[Scope, ...] = Field(
        default=_EVERYDAY,
        min_length=1,
        description="Scopes that clients are told to ask for at first; others are asked for when a call needs them.",
    )
    access_token_seconds: int = Field(
        default=600, ge=30, le=3000, description="Seconds an access token of our own is good for."
    )
