"""What an identity provider says about a user, and the rules that turn it into access at the gateway."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from gateway.auth.client_key import ClientKey
from gateway.auth.providers.presets import PresetName
from gateway.contract import Json
from gateway.contract.caller import ADMIN, SCOPES

ANY_GROUP: Final = "*"


class SignInRefused(Exception):
    """The provider or the rules refuse the user. The message is for the user; it contains no secret."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Access of the members of one group of the provider, or of everyone for `*`."""

    group: str
    tenant: str
    groups: frozenset[str]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """One configured identity provider."""

    name: str
    label: str
    preset: PresetName
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    client_key: ClientKey | None
    scopes: tuple[str, ...]
    groups_claim: str
    scim_id: str
    allowed_domains: frozenset[str]
    allowed_tenants: frozenset[str]
    rules: Sequence[AccessRule]
    admin_group: str
    contact: str
    """Whom a refused user may ask."""
    graph_url: str

    @property
    def admin_groups(self) -> frozenset[str]:
        """Groups of the provider that grant `mcp:admin`."""
        return frozenset(filter(None, (self.admin_group, *(rule.group for rule in self.rules if ADMIN in rule.scopes))))

    @property
    def tenants(self) -> frozenset[str]:
        """Tenants that users of this provider can belong to."""
        return frozenset((*(rule.tenant for rule in self.rules), *(("default",) if self.admin_group else ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """A user as the provider describes it. Issuer and subject identify the account; nothing else does."""

    issuer: str
    subject: str
    name: str = ""
    email: str = ""
    """Empty unless the provider says that it verified the address."""
    groups: frozenset[str] = frozenset()
    scim_value: str = ""
    sid: str = ""
    credential: Json = field(default_factory=dict[str, str], repr=False)
    """The provider's refresh or access token, to ask about the user again; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Access:
    tenant: str
    groups: frozenset[str]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """A verified logout token: the user, the session, or both."""

    issuer: str
    subject: str
    sid: str


class IdentityProvider(Protocol):
    """An identity provider. Methods raise `SignInRefused`, or `Fault` while the provider cannot be used."""

    @property
    def config(self) -> ProviderConfig: ...

    async def authorization_url(self, *, state: str, nonce: str, challenge: str, prompt: str) -> str: ...

    async def check_issuer(self, received: str | None) -> None:
        """Refuse a redirect that another issuer sent (RFC 9207)."""
        ...

    async def exchange(self, code: str, *, verifier: str, nonce: str) -> ProviderIdentity: ...

    async def recheck(self, issuer: str, subject: str, credential: Json) -> ProviderIdentity:
        """Ask about a user again. Raises `SignInRefused` if the user was removed or the grant was withdrawn."""
        ...

    async def verify_logout(self, token: str) -> LogoutRequest: ...


def find_access(
    config: ProviderConfig, groups: frozenset[str], provisioned: Mapping[str, frozenset[str]] = MappingProxyType({})
) -> Access | None:
    """Return the access of the first rule that matches; None if none does.

    `groups` come from the provider's tokens, `provisioned` from SCIM, by tenant. A rule that grants
    `mcp:admin`, and the group of administrators, match groups of tokens only.
    """
    is_admin = bool(config.admin_group) and config.admin_group in groups
    for rule in config.rules:
        known = groups if ADMIN in rule.scopes else groups | provisioned.get(rule.tenant, frozenset())
        if rule.group == ANY_GROUP or rule.group in known:
            return Access(rule.tenant, rule.groups, rule.scopes | {ADMIN} if is_admin else rule.scopes)
    return Access("default", frozenset(), SCOPES) if is_admin else None


def no_access(config: ProviderConfig, name: str) -> SignInRefused:
    who = f" as {name}" if name else ""
    ask = config.contact or "Ask an administrator of this gateway for membership in one of its groups."
    return SignInRefused(f"You are signed in at {config.label}{who}, but no group of yours has access here. {ask}")
