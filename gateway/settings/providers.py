"""Section `auth.providers`: identity providers at which users of the embedded authorization server sign in."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from gateway.auth.providers.presets import PRESETS, PresetName
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.settings.base import Section
from gateway.settings.values import Problem, Scope, TenantName, WebAddress, problems


class AccessRuleSettings(Section):
    """Access of one group of the provider."""

    group: str = Field(min_length=1, max_length=256, description="Group of the provider; * matches every user.")
    tenant: TenantName = Field(default="default", description="Tenant of the members.")
    groups: tuple[str, ...] = Field(default=(), description="Gateway groups of the members.")
    scopes: tuple[Scope, ...] = Field(
        default=DEFAULT_SCOPES, min_length=1, description="Maximum scopes of the members' tokens."
    )


class ProviderSettings(Section):
    """An identity provider at which users sign in."""

    preset: PresetName = Field(default="oidc", description="Kind of provider, which selects the defaults.")
    label: str = Field(default="", max_length=60, description="Name on the sign-in page; by default the preset's.")
    issuer: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#]+)?$",
        description="Issuer identifier, exactly as in the ID tokens; not needed for Google, GitHub and GitLab.com.",
    )
    client_id: str = Field(min_length=1, description="Client id of the gateway at the provider.")
    client_secret: SecretStr | None = Field(default=None, description="Client secret of the gateway.")
    client_secret_file: Path | None = Field(default=None, description="File that contains the client secret.")
    client_key: SecretStr | None = Field(
        default=None, description="Private key (PEM or JWK) for private_key_jwt, instead of a secret."
    )
    client_key_file: Path | None = Field(default=None, description="File that contains the private key.")
    scopes: tuple[Scope, ...] | None = Field(
        default=None, description="Scopes requested from the provider; by default the preset's."
    )
    groups_claim: str | None = Field(
        default=None, description="Claim with the user's groups, by default groups; a.b is member b of a."
    )
    scim_id: str = Field(
        default="", description="Claim that equals externalId of the provider's SCIM client; by default the preset's."
    )
    allowed_domains: tuple[str, ...] = Field(
        default=(), description="Domains of users: Google Workspace domains, or domains of verified e-mail addresses."
    )
    allowed_tenants: tuple[str, ...] = Field(
        default=(), description="Entra directory ids of users; required with the issuer of several directories."
    )
    rules: tuple[AccessRuleSettings, ...] = Field(
        default=(),
        description="Access by group; the first rule that matches applies, and a user without one is refused.",
    )
    admin_group: str = Field(default="", description="Group of the provider whose members administer the gateway.")
    contact: str = Field(default="", max_length=300, description="Whom a refused user should ask; shown on the page.")
    graph_url: WebAddress = Field(
        default="https://graph.microsoft.com", description="Address of Microsoft Graph in a national cloud."
    )
    allow_private: bool = Field(
        default=False, description="Whether the provider may be in a private network and use plain HTTP."
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> "ProviderSettings":
        if found := [*self._problems()]:
            raise problems(*found)
        return self

    def _problems(self) -> Iterator[Problem]:
        if not self.effective_issuer:
            yield ("issuer",), f"is required for the preset {self.preset}"
        if self.effective_issuer.startswith("http://") and not self.allow_private:
            yield ("issuer",), "must use https; set allow_private for a provider in your own network"
        if self.client_secret is not None and self.client_key is not None:
            yield ("client_key",), "set either client_secret or client_key, not both"
        if self.client_key is not None:
            from gateway.auth.client_key import ClientKey  # slow to import, and rarely needed

            try:
                ClientKey(self.client_id, self.client_key.get_secret_value())
            except ValueError as exc:
                yield ("client_key",), str(exc)
        if self.is_multi_tenant and not self.allowed_tenants:
            yield ("allowed_tenants",), "is required with the issuer of several directories; list the directory ids"
        if not self.rules and not self.admin_group:
            yield ("rules",), "without rules every user is refused; add one, such as {group: '*'}"

    @property
    def effective_issuer(self) -> str:
        return self.issuer or PRESETS[self.preset].issuer

    @property
    def is_multi_tenant(self) -> bool:
        """Whether the issuer stands for several Entra directories."""
        return self.preset == "entra" and self.issuer.endswith(("/organizations/v2.0", "/common/v2.0"))
