"""`auth:`, who may call and how they get what they call with."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.settings.section import Section
from gateway.settings.values import Scope, rate

Rate = Annotated[str, AfterValidator(rate)]

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
    redirects: tuple[str, ...] = Field(
        default=(), description="Callbacks that clients may register beside loopback, https and the well-known ones."
    )
    client_documents: bool | None = Field(
        default=None,
        description="Whether a client may be known by the address of a document about it; "
        "unless given, yes except where only this machine is served.",
    )
    client_document_domains: tuple[str, ...] = Field(
        default=(), description="Hosts whose documents are looked at, with all below them; every host unless given."
    )
    client_document_private_hosts: tuple[str, ...] = Field(
        default=(), description="Hosts of such documents that may lie in a private network."
    )
    authorize_rate: Rate = Field(default="60/minute", description="Visits of one address to the sign-in pages.")
    token_rate: Rate = Field(default="300/minute", description="Requests of one address for tokens.")
    registration_rate: Rate = Field(default="10/hour", description="Clients that one address may register.")
