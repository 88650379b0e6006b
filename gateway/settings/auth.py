"""`auth:`, who may call and how they get what they call with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.contract.caller import EVERYDAY
from gateway.settings.base import Section
from gateway.settings.values import Problem, Scope, TenantName, WebAddress, problems, rate

Rate = Annotated[str, AfterValidator(rate)]


class IntrospectionSettings(Section):
    """Where opaque tokens are asked about (RFC 7662)."""

    url: WebAddress = Field(description="Address of the introspection endpoint.")
    client_id: str = Field(min_length=1, description="Client that asks.")
    client_secret: SecretStr = Field(description="Its secret.")
    client_secret_file: Path | None = Field(default=None, description="File that holds the secret.")


class IssuerSettings(Section):
    """An identity provider whose tokens are taken."""

    issuer: str = Field(pattern=r"^https?://[^\s?#]+$", description="Its identifier, exactly as its tokens spell it.")
    algorithms: tuple[Literal["ES256", "RS256"], ...] = Field(
        default=("ES256", "RS256"), min_length=1, description="Algorithms that it signs with."
    )
    types: tuple[Literal["at+jwt", "jwt"], ...] = Field(
        default=("at+jwt",), min_length=1, description="What the header typ of its access tokens says."
    )
    audiences: tuple[str, ...] = Field(
        default=(), description="Audiences that stand for /mcp, beside the addresses of the endpoints themselves."
    )
    tenant: TenantName | None = Field(default=None, description="Tenant of everybody it vouches for.")
    tenant_claim: str = Field(default="", description="Claim that says the tenant, where it is not one for all.")
    tenants: dict[str, TenantName] = Field(default={}, description="Values of that claim, and the tenant of each.")
    subject_claim: str = Field(default="sub", min_length=1, description="Claim that names the user.")
    groups_claim: str = Field(default="groups", description="Claim that lists the user's groups; a.b is b inside a.")
    scopes_claim: str = Field(default="scope", description="Claim that lists scopes or roles; a.b is b inside a.")
    scope_map: dict[str, tuple[Scope, ...]] = Field(
        default={}, description="Scopes or roles of theirs, and the scopes of ours that each stands for."
    )
    introspection: IntrospectionSettings | None = Field(
        default=None, description="Where opaque tokens are asked about."
    )
    allow_private: bool = Field(default=False, description="Whether it may lie in a private network, without TLS.")

    @model_validator(mode="after")
    def _one_tenant(self) -> "IssuerSettings":
        if (self.tenant is None) == (not self.tenant_claim):
            raise problems((("tenant",), "give tenant, or tenant_claim with tenants"))
        if self.tenant_claim and not self.tenants:
            raise problems((("tenants",), "say which tenant each value of tenant_claim is"))
        return self

    @property
    def gives(self) -> frozenset[str]:
        """The tenants that its users may belong to."""
        return frozenset((self.tenant,)) if self.tenant is not None else frozenset(self.tenants.values())


class AuthSettings(Section):
    """Who may call."""

    mode: Literal["embedded", "external", "none"] = Field(
        default="embedded",
        description="Keys and tokens of our own, tokens of an identity provider, or nobody is asked.",
    )
    issuers: tuple[IssuerSettings, ...] = Field(default=(), description="Identity providers, for mode external.")
    scopes: tuple[Scope, ...] = Field(
        default=EVERYDAY,
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

    @model_validator(mode="after")
    def _agree(self) -> "AuthSettings":
        if found := [*self._problems()]:
            raise problems(*found)
        return self

    def _problems(self) -> Iterator[Problem]:
        if self.mode == "external" and not self.issuers:
            yield ("issuers",), "name the identity provider whose tokens are taken"
        if self.mode != "external" and self.issuers:
            yield ("issuers",), "identity providers are asked in mode external only"
        seen: set[str] = set()
        for position, issuer in enumerate(self.issuers):
            # A subject is unique only to its issuer: in one tenant two of them could speak of two people.
            if shared := issuer.gives & seen:
                yield ("issuers", position), f"another issuer gives the tenant {min(shared)} too"
            seen |= issuer.gives
