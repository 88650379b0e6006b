"""Defaults for well-known identity providers. The settings of a provider override them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

PresetName = Literal["oidc", "entra", "google", "okta", "auth0", "keycloak", "github", "gitlab"]

_OPENID: Final = ("openid", "profile", "email")


@dataclass(frozen=True, slots=True)
class Preset:
    """Defaults of one kind of provider."""

    label: str
    scopes: tuple[str, ...] = (*_OPENID, "offline_access")
    issuer: str = ""
    """Issuer of a provider that has only one; empty if the settings must name it."""
    groups_claim: str = "groups"
    scim_id: str = "sub"
    """Claim that equals `externalId` of the provider's SCIM client."""
    parameters: tuple[tuple[str, str], ...] = ()
    """Additional parameters of the authorization request."""


PRESETS: Final[Mapping[PresetName, Preset]] = {
    "oidc": Preset("Single sign-on"),
    # User.Read lets the access token ask Microsoft Graph for groups that do not fit into the ID token.
    "entra": Preset("Microsoft", scopes=(*_OPENID, "offline_access", "User.Read"), scim_id="oid"),
    # Google issues refresh tokens for access_type=offline, and only after the user has seen the consent page.
    "google": Preset(
        "Google",
        scopes=_OPENID,
        issuer="https://accounts.google.com",
        parameters=(("access_type", "offline"), ("prompt", "consent")),
    ),
    "okta": Preset("Okta", scopes=(*_OPENID, "groups", "offline_access")),
    "auth0": Preset("Auth0"),
    # Without offline_access: a refresh token of a Keycloak session ends with that session.
    "keycloak": Preset("Keycloak", scopes=_OPENID),
    "github": Preset("GitHub", scopes=("read:user", "user:email", "read:org"), issuer="https://github.com"),
    # GitLab issues refresh tokens without offline_access, which it rejects.
    "gitlab": Preset("GitLab", scopes=_OPENID, issuer="https://gitlab.com"),
}
