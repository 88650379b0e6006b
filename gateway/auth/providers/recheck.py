"""Asks identity providers again whether their users still have access.

The question is asked when a refresh token of the gateway is used, and in the background for users with API keys or
recent tokens. A user who was removed or left the group loses access; an unreachable provider is tolerated for a while.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import httpx

from gateway.auth.browser_sessions import UserKey
from gateway.auth.providers.federated_users import FederatedUser, FederatedUsers
from gateway.auth.providers.identity import (
    Access,
    IdentityProvider,
    ProviderConfig,
    ProviderIdentity,
    SignInRefused,
    find_access,
    no_access,
)
from gateway.auth.server.refresh_tokens import SLIDING_SECONDS
from gateway.errors import Fault, Kind

_LEASE_SECONDS: Final = 30.0
_WAIT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
_BATCH: Final = 100
_CONCURRENT: Final = 8
_ACTIVE_SECONDS: Final = 86400.0
"""A user whose client refreshed a token within this time is checked in the background."""
_log = logging.getLogger("gatehouse.identity")

ProvisionedGroups = Callable[[str, str, str], Awaitable[frozenset[str] | None]]
"""Maps provider, tenant and SCIM value to the groups that SCIM provisioned; None if SCIM deactivated the user."""


class AccessPeriods:
    """How long access lasts without an answer of the provider, in seconds."""

    def __init__(self, *, recheck: float, grace: float, max_age: float) -> None:
        self.recheck = recheck
        self.grace = grace
        self.max_age = max_age

    def valid_until(self, identity: ProviderIdentity, *, checked: float, signed_in: float) -> float:
        if identity.credential:
            return checked + self.recheck + self.grace
        return signed_in + self.max_age


class Recheck:
    """Checks users of providers, each at most once at a time over all processes."""

    def __init__(
        self,
        providers: Mapping[str, IdentityProvider],
        users: FederatedUsers,
        periods: AccessPeriods,
        provisioned: ProvisionedGroups,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._providers = providers
        self._users = users
        self._periods = periods
        self._provisioned = provisioned
        self._clock = clock
        self._running: dict[UserKey, asyncio.Task[bool]] = {}

    async def confirm(self, user: UserKey, *, max_age: float = 0.0) -> bool:
        """Return whether a user still has access, with an answer of the provider at most `max_age` seconds old.

        A local user always has. Raises `Fault(UNAVAILABLE)` if the provider is unreachable for longer than tolerated.
        """
        found = await self._users.find(user)
        if found is None:
            return True
        if found.checked_at > self._clock() - max_age and found.sealed is not None:
            return True
        # Checks of one user run one after the other; the next one uses the answer of the one before.
        while (running := self._running.get(user)) is not None:
            await asyncio.wait((running,))
        task = self._running[user] = asyncio.create_task(self._check(found))
        task.add_done_callback(lambda _: self._running.pop(user, None))
        return await asyncio.shield(task)

    async def access(self, config: ProviderConfig, identity: ProviderIdentity) -> Access:
        """Return the access of a user by the rules. Raises `SignInRefused`."""
        return await self._access(config, identity.groups, identity.scim_value, identity.name)

    async def _access(self, config: ProviderConfig, groups: frozenset[str], scim_value: str, name: str) -> Access:
        provisioned: dict[str, frozenset[str]] = {}
        deactivated: set[str] = set()
        for tenant in config.tenants if scim_value else ():
            found = await self._provisioned(config.name, tenant, scim_value)
            if found is None:
                deactivated.add(tenant)
            else:
                provisioned[tenant] = found
        access = find_access(config, groups, provisioned)
        if access is None:
            raise no_access(config, name)
        if access.tenant in deactivated:
            raise SignInRefused(f"Your account was deactivated. {config.contact}".rstrip())
        return access

    async def apply_provisioning(self, tenant: str, provider: str, scim_value: str) -> None:
        """Apply a change of a provisioned user or of its groups to the users linked to it."""
        for user in await self._users.linked(tenant, provider, scim_value):
            if provider not in self._providers:
                await self._users.refuse(user)
                continue
            config = self._providers[provider].config
            try:
                access = await self._access(config, user.provider_groups, scim_value, user.display_name)
            except SignInRefused:
                access = None
            await self._users.change_access(user, access)

    async def run(self) -> None:
        """Check users in the background, until cancelled."""
        period = max(0.2, min(60.0, self._periods.recheck / 10))
        while True:
            await asyncio.sleep(period)
            try:
                await self.check_due()
            except Exception:  # the task must survive, for example an unreachable database
                _log.exception("identity: background check of users failed; retry in %g s", period)

    async def check_due(self) -> None:
        """Check the users whose last check is nearly `recheck` seconds old; stop access that is not confirmed."""
        now = self._clock()
        max_age = self._periods.recheck * 0.8
        recent = now + SLIDING_SECONDS - _ACTIVE_SECONDS
        due = await self._users.due(checked_before=now - max_age, recent=recent, limit=_BATCH)
        limit = asyncio.Semaphore(_CONCURRENT)

        async def check(user: FederatedUser) -> None:
            async with limit:
                try:
                    await self.confirm(user.key, max_age=max_age)
                except Fault as fault:
                    _log.warning("identity: user %s/%s cannot be checked: %s", *user.key, fault.message)

        await asyncio.gather(*map(check, due))
        for user in await self._users.expired(_BATCH):
            await (self._users.refuse(user) if user.sealed is None else self._users.interrupt(user))

    async def _check(self, user: FederatedUser) -> bool:
        if user.sealed is None:
            if self._clock() < user.signed_in_at + self._periods.max_age:
                return True
            await self._users.refuse(user)
            return False
        await self._wait_for_lease(user)
        try:
            # Another process may have checked the user, and replaced the refresh token, in the meantime.
            current = await self._users.find(user.key)
            if current is None or current.sealed is None:
                return False
            if current.checked_at > user.checked_at:
                return True
            return await self._ask(current)
        finally:
            await self._users.release(user)

    async def _wait_for_lease(self, user: FederatedUser) -> None:
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while not await self._users.lease(user, _LEASE_SECONDS):  # noqa: ASYNC110 - held by another process
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError as exc:
            raise Fault(Kind.UNAVAILABLE, "Another process checks the user. Try again later.", retry_after=5) from exc

    async def _ask(self, user: FederatedUser) -> bool:
        provider = self._providers.get(user.provider)
        try:
            if provider is None or not self._is_issuer(provider.config, user.issuer):
                raise SignInRefused("The identity provider is no longer configured.")
            identity = await provider.recheck(user.issuer, user.external_subject, self._users.credential(user))
            access = await self.access(provider.config, identity)
            now = self._clock()
            until = self._periods.valid_until(identity, checked=now, signed_in=user.signed_in_at)
            tenant, _ = await self._users.save(user.provider, identity, access, valid_until=until, signed_in=False)
            return tenant == user.tenant
        except SignInRefused as refused:
            _log.warning("identity: access of user %s/%s ended: %s", user.tenant, user.subject, refused)
            await self._users.refuse(user)
            return False
        except (Fault, httpx.HTTPError) as exc:
            if self._clock() < user.checked_at + self._periods.recheck + self._periods.grace:
                _log.warning(
                    "identity: provider %s is unreachable; access of %s/%s continues", user.provider, *user.key
                )
                return True
            await self._users.interrupt(user)
            message = "The identity provider has been unreachable for too long. Try again later."
            raise Fault(Kind.UNAVAILABLE, message, retry_after=30) from exc

    def _is_issuer(self, config: ProviderConfig, issuer: str) -> bool:
        return issuer == config.issuer or (config.preset == "entra" and bool(config.allowed_tenants))
