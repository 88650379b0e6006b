"""Section `auth`: how callers authenticate, and which identity providers issue their tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.contract.caller import DEFAULT_SCOPES
from gateway.settings.base import Section
from gateway.settings.providers import ProviderSettings
from gateway.settings.values import Namespace, Problem, Scope, Seconds, TenantName, WebAddress, problems, rate

Rate = Annotated[str, AfterValidator(rate)]


class IntrospectionSettings(Section):
    """Token introspection for opaque tokens (RFC 7662)."""

    url: WebAddress = Field(description="URL of the introspection endpoint.")
    client_id: str = Field(min_length=1, description="Client id of the gateway at the introspection endpoint.")
    client_secret: SecretStr = Field(description="Client secret of the gateway.")
    client_secret_file: Path | None = Field(default=None, description="File that contains the client secret.")


class IssuerSettings(Section):
    """An identity provider whose tokens are accepted."""

    issuer: str = Field(pattern=r"^https?://[^\s?#]+$", description="Issuer identifier, exactly as in the tokens.")
    algorithms: tuple[Literal["ES256", "RS256"], ...] = Field(
        default=("ES256", "RS256"), min_length=1, description="Accepted signature algorithms."
    )
    types: tuple[Literal["at+jwt", "jwt"], ...] = Field(
        default=("at+jwt",), min_length=1, description="Accepted values of the typ header of access tokens."
    )
    audiences: tuple[str, ...] = Field(
        default=(), description="Audiences accepted for /mcp, in addition to the URLs of the endpoints."
    )
    tenant: TenantName | None = Field(default=None, description="Tenant of all users of this issuer.")
    tenant_claim: str = Field(default="", description="Claim that selects the tenant, instead of a fixed tenant.")
    tenants: dict[str, TenantName] = Field(default={}, description="Tenant by value of tenant_claim.")
    subject_claim: str = Field(default="sub", min_length=1, description="Claim that identifies the user.")
    groups_claim: str = Field(default="groups", description="Claim with the user's groups; a.b is member b of a.")
    scopes_claim: str = Field(default="scope", description="Claim with scopes or roles; a.b is member b of a.")
    scope_map: dict[str, tuple[Scope, ...]] = Field(
        default={}, description="Gateway scopes granted by each scope or role of the issuer."
    )
    introspection: IntrospectionSettings | None = Field(
        default=None, description="Introspection endpoint for opaque tokens."
    )
    allow_private: bool = Field(
        default=False, description="Whether the issuer may be in a private network and use plain HTTP."
    )

    @model_validator(mode="after")
    def _check_tenant(self) -> "IssuerSettings":
        if (self.tenant is None) == (not self.tenant_claim):
            raise problems((("tenant",), "set either tenant, or tenant_claim with tenants"))
        if self.tenant_claim and not self.tenants:
            raise problems((("tenants",), "is required with tenant_claim; map each value of the claim to a tenant"))
        return self

    @property
    def possible_tenants(self) -> frozenset[str]:
        """The tenants that users of this issuer can belong to."""
        return frozenset((self.tenant,)) if self.tenant is not None else frozenset(self.tenants.values())


class AuthSettings(Section):
    """How callers authenticate."""

    mode: Literal["embedded", "external", "none"] = Field(
        default="embedded",
        description="Built-in keys and tokens (embedded), tokens of an identity provider (external), or no "
        "authentication (none).",
    )
    issuers: tuple[IssuerSettings, ...] = Field(default=(), description="Identity providers, for mode external.")
    providers: dict[Namespace, ProviderSettings] = Field(
        default={}, description="Identity providers at which users sign in, for mode embedded, by name."
    )
    local_users: bool | None = Field(
        default=None, description="Whether users with passwords may sign in; by default only without providers."
    )
    recheck: Seconds = Field(
        default=900, description="Maximum seconds until a change of a user at the provider takes effect."
    )
    recheck_grace: float = Field(
        default=3600, ge=0, description="Seconds that access continues while the provider is unreachable."
    )
    max_age: Seconds = Field(
        default=43200,
        description="Seconds after which users sign in at the provider again, if it issues no refresh token.",
    )
    scopes: tuple[Scope, ...] = Field(
        default=DEFAULT_SCOPES,
        min_length=1,
        description="Scopes that clients request initially; further scopes are requested when a call needs them.",
    )
    access_token_seconds: int = Field(
        default=600, ge=30, le=3000, description="Lifetime in seconds of access tokens that the gateway issues."
    )
    redirects: tuple[str, ...] = Field(
        default=(),
        description="Redirect URIs that clients may register in addition to loopback, https and the well-known ones.",
    )
    client_documents: bool | None = Field(
        default=None,
        description="Whether clients may identify themselves by the URL of a client metadata document; "
        "by default yes, except when the gateway listens on loopback only.",
    )
    client_document_domains: tuple[str, ...] = Field(
        default=(),
        description="Hosts from which client documents are fetched, including subdomains; by default any host.",
    )
    client_document_private_hosts: tuple[str, ...] = Field(
        default=(), description="Hosts of client documents that may be in a private network."
    )
    authorize_rate: Rate = Field(default="60/minute", description="Requests per IP address to the sign-in pages.")
    token_rate: Rate = Field(default="300/minute", description="Token requests per IP address.")
    registration_rate: Rate = Field(default="10/hour", description="Client registrations per IP address.")

    def allows_passwords(self) -> bool:
        """Whether users with passwords may sign in."""
        return not self.providers if self.local_users is None else self.local_users

    @model_validator(mode="after")
    def _check_consistency(self) -> "AuthSettings":
        if found := [*self._problems()]:
            raise problems(*found)
        return self

    def _problems(self) -> Iterator[Problem]:
        if self.mode == "external" and not self.issuers:
            yield ("issuers",), "mode external needs at least one issuer; add the identity provider"
        if self.mode != "external" and self.issuers:
            yield ("issuers",), "issuers are used in mode external only; remove them or set mode to external"
        if self.mode != "embedded" and self.providers:
            yield ("providers",), "providers are used in mode embedded only; remove them or set mode to embedded"
        seen: set[str] = set()
        for position, issuer in enumerate(self.issuers):
            # A subject is unique within its issuer only: with two issuers in a tenant it could mean two users.
            if shared := issuer.possible_tenants & seen:
                yield (
                    ("issuers", position),
                    f"another issuer uses tenant {min(shared)} as well; use one issuer per tenant",
                )
            seen |= issuer.possible_tenants
