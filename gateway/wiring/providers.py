"""Builds sign-in at identity providers from `auth.providers`."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter

from gateway.auth.client_key import ClientKey
from gateway.auth.providers.federated_users import FederatedUsers
from gateway.auth.providers.github import GithubProvider
from gateway.auth.providers.identity import AccessRule, IdentityProvider, ProviderConfig
from gateway.auth.providers.oidc import OidcProvider
from gateway.auth.providers.presets import PRESETS
from gateway.auth.providers.recheck import AccessPeriods, Recheck
from gateway.auth.providers.signin import ProviderSignIn
from gateway.auth.scim.directory import ScimDirectory
from gateway.auth.scim.tokens import ScimTokens
from gateway.auth.users import Users
from gateway.edge.ip_rate_limit import IpRateLimiter
from gateway.edge.scim_routes import PATH as SCIM_PATH
from gateway.edge.scim_routes import scim_router
from gateway.outbound import create_client as outbound_client
from gateway.settings.auth import AuthSettings
from gateway.settings.providers import ProviderSettings
from gateway.state.database import Database

_MAX_BYTES: Final = 1024 * 1024
"""Maximum response of a provider; an Entra user may be in 11,000 groups."""
_TIMEOUT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OpenProviders:
    """The parts that sign users in at providers and check them later."""

    sign_in: ProviderSignIn
    recheck: Recheck


def open_providers(
    *,
    auth: AuthSettings,
    public_url: str,
    database: Database,
    users: Users,
    federated: FederatedUsers,
    exit_stack: AsyncExitStack,
) -> OpenProviders:
    """Open the configured providers and start the background checks of their users."""
    providers: dict[str, IdentityProvider] = {}
    for name, entry in auth.providers.items():
        http = outbound_client(allow_private=entry.allow_private, max_bytes=_MAX_BYTES, timeout=_TIMEOUT_SECONDS)
        exit_stack.push_async_callback(http.aclose)
        kind = GithubProvider if entry.preset == "github" else OidcProvider
        providers[name] = kind(provider_config(name, entry), http, f"{public_url}/oauth/callback/{name}")
    periods = AccessPeriods(recheck=auth.recheck, grace=auth.recheck_grace, max_age=auth.max_age)
    recheck = Recheck(providers, federated, periods, ScimDirectory(database).provisioned_groups)
    sign_in = ProviderSignIn(
        database=database, providers=providers, federated=federated, users=users, recheck=recheck, periods=periods
    )
    task = asyncio.create_task(recheck.run())

    async def stop() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    exit_stack.push_async_callback(stop)
    return OpenProviders(sign_in, recheck)


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


def allow_passwords(auth: AuthSettings) -> bool:
    return not auth.providers if auth.local_users is None else auth.local_users


def open_scim(
    auth: AuthSettings,
    public_url: str,
    database: Database,
    tokens: ScimTokens,
    recheck: Recheck,
    rate_limiter: IpRateLimiter,
) -> APIRouter:
    """Open the SCIM service, which provisions users of the configured providers."""
    # scim2-models takes a fifth of a second to import.
    from gateway.auth.scim.service import ScimService

    service = ScimService(
        base_url=public_url + SCIM_PATH,
        tokens=tokens,
        directory=ScimDirectory(database),
        apply_change=recheck.apply_provisioning,
        admin_groups={name: provider_config(name, entry).admin_groups for name, entry in auth.providers.items()},
    )
    return scim_router(service, rate_limiter)
