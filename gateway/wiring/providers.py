"""Builds sign-in at identity providers from `auth.providers`."""

import asyncio
import hmac
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from gateway.auth.client_key import ClientKey
from gateway.auth.providers.federated_users import FederatedUsers
from gateway.auth.providers.github import GithubProvider
from gateway.auth.providers.identity import AccessRule, IdentityProvider, ProviderConfig
from gateway.auth.providers.oidc import OidcProvider
from gateway.auth.providers.presets import PRESETS
from gateway.auth.providers.recheck import AccessPeriods, ProvisionedGroups, Recheck
from gateway.auth.providers.signin import ProviderSignIn
from gateway.auth.sealing import Sealer
from gateway.auth.users import Users
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


def federated_users(database: Database, users: Users, signing_secret: bytes) -> FederatedUsers:
    """Open the users of providers. The key that seals the providers' tokens is derived from the signing secret."""
    return FederatedUsers(database, users, Sealer(hmac.digest(signing_secret, b"provider tokens", "sha256")))


def open_providers(
    *,
    auth: AuthSettings,
    public_url: str,
    database: Database,
    users: Users,
    federated: FederatedUsers,
    provisioned: ProvisionedGroups,
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
    recheck = Recheck(providers, federated, periods, provisioned)
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


async def nothing_provisioned(provider: str, tenant: str, scim_value: str) -> frozenset[str]:
    return frozenset()
