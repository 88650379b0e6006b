"""Builds sign-in at identity providers from `auth.providers`."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.auth.client_key import ClientKey
from gateway.auth.providers.federated_users import FederatedUsers, federated_users
from gateway.auth.providers.github import GithubProvider
from gateway.auth.providers.identity import AccessRule, IdentityProvider, ProviderConfig
from gateway.auth.providers.oidc import OidcProvider
from gateway.auth.providers.presets import PRESETS
from gateway.auth.providers.recheck import AccessPeriods, Recheck
from gateway.auth.providers.signin import ProviderSignIn
from gateway.auth.scim.directory import ScimDirectory
from gateway.auth.scim.tokens import ScimTokens
from gateway.auth.users import Users
from gateway.outbound import OutboundRoute
from gateway.outbound import create_client as outbound_client
from gateway.settings.auth import AuthSettings
from gateway.settings.providers import ProviderSettings
from gateway.state.database import Database

if TYPE_CHECKING:
    from fastapi import APIRouter

    from gateway.edge.ip_rate_limit import IpRateLimiter

SCIM_PATH: Final = "/scim/v2"
_MAX_BYTES: Final = 1024 * 1024
"""Maximum response of a provider; an Entra user may be in 11,000 groups."""
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OpenProviders:
    """The parts that sign users in at providers, check them later and let providers deactivate them."""

    sign_in: ProviderSignIn
    recheck: Recheck
    federated: FederatedUsers
    scim_tokens: ScimTokens
    scim_directory: ScimDirectory
    scim_url: str
    admin_groups: Mapping[str, frozenset[str]]

    def scim_router(self, rate_limiter: "IpRateLimiter") -> "APIRouter":
        """Build the routes of SCIM. Called at the first request to a plain route: the imports are slow."""
        from gateway.auth.scim.service import ScimService
        from gateway.edge.scim_routes import scim_router

        service = ScimService(
            base_url=self.scim_url,
            tokens=self.scim_tokens,
            directory=self.scim_directory,
            apply_change=self.recheck.apply_provisioning,
            admin_groups=self.admin_groups,
        )
        return scim_router(SCIM_PATH, service, rate_limiter)


def open_providers(
    *,
    auth: AuthSettings,
    public_url: str,
    database: Database,
    users: Users,
    signing_secret: bytes,
    pepper: bytes,
    exit_stack: AsyncExitStack,
    route: OutboundRoute,
) -> OpenProviders:
    """Open the configured providers and start the background checks of their users."""
    providers: dict[str, IdentityProvider] = {}
    for name, entry in auth.providers.items():
        http = outbound_client(
            allow_private=entry.allow_private, max_bytes=_MAX_BYTES, timeout=_TIMEOUT_SECONDS, route=route
        )
        exit_stack.push_async_callback(http.aclose)
        kind = GithubProvider if entry.preset == "github" else OidcProvider
        providers[name] = kind(provider_config(name, entry), http, f"{public_url}/oauth/callback/{name}")
    federated = federated_users(database, users, signing_secret)
    directory = ScimDirectory(database)
    periods = AccessPeriods(recheck=auth.recheck, grace=auth.recheck_grace, max_age=auth.max_age)
    recheck = Recheck(providers, federated, periods, directory.provisioned_groups)
    sign_in = ProviderSignIn(
        database=database, providers=providers, federated=federated, users=users, recheck=recheck, periods=periods
    )
    task = asyncio.create_task(recheck.run())

    async def stop() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    exit_stack.push_async_callback(stop)
    return OpenProviders(
        sign_in=sign_in,
        recheck=recheck,
        federated=federated,
        scim_tokens=ScimTokens(database, pepper),
        scim_directory=directory,
        scim_url=public_url + SCIM_PATH,
        admin_groups={name: provider.config.admin_groups for name, provider in providers.items()},
    )


def provider_config(name: str, entry: ProviderSettings) -> ProviderConfig:
    preset = PRESETS[entry.preset]
    key = entry.client_key
    return ProviderConfig(
        name=name,
        label=entry.label or preset.label,
        preset=entry.preset,
        issuer=entry.effective_issuer,
        client_id=entry.client_id,
        client_secret=entry.client_secret.get_secret_value() if entry.client_secret is not None else "",
        client_key=None if key is None else ClientKey(entry.client_id, key.get_secret_value()),
        scopes=preset.scopes if entry.scopes is None else entry.scopes,
        groups_claim=preset.groups_claim if entry.groups_claim is None else entry.groups_claim,
        scim_id=entry.scim_id or preset.scim_id,
        allowed_domains=frozenset(each.lower() for each in entry.allowed_domains),
        allowed_tenants=frozenset(entry.allowed_tenants),
        rules=[
            AccessRule(rule.group, rule.tenant, frozenset(rule.groups), frozenset(rule.scopes)) for rule in entry.rules
        ],
        admin_group=entry.admin_group,
        contact=entry.contact,
        graph_url=entry.graph_url,
    )
