"""Sign-in with a password or, on a loopback gateway, a one-time code. Failed attempts are rate limited."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.users import Users
from gateway.errors import Fault, Kind

_WINDOW_SECONDS: Final = 300.0
_MAX_PER_ADDRESS: Final = 10
"""Failures per client address within a window. Attempts in progress count until they succeed."""
_MAX_PER_NAME: Final = 50
"""Failures per user name from all addresses. Higher, so that others cannot easily lock a user out."""
_MAX_NAMES: Final = 10_000


class FailureCounter(Protocol):
    """Counts recent failures by name, in this process or across all processes."""

    async def count(self, name: str, limit: int, seconds: float) -> float:
        """Count an attempt and return 0; at the limit, return the seconds to wait instead."""
        ...

    async def uncount(self, name: str, seconds: float) -> None:
        """Remove an attempt that did not fail."""
        ...


class SignIn:
    def __init__(
        self,
        users: Users,
        browsers: BrowserSessions,
        failures: FailureCounter,
        *,
        local: bool,
        codes: bool | None = None,
        passwords: bool = True,
    ) -> None:
        """By default, a code is accepted on a loopback gateway only."""
        self._users = users
        self._browsers = browsers
        self._failures = failures
        self._local = local
        self._codes = local if codes is None else codes
        self._passwords = passwords

    async def available_methods(self) -> tuple[bool, bool]:
        """Return whether codes are accepted, and whether passwords are."""
        if not self._passwords:
            return self._codes, False
        if not self._local:
            return self._codes, True
        return self._codes, any(user.has_password for user in await self._users.list())

    async def attempt(self, form: Mapping[str, str], address: str) -> tuple[str, str]:
        """Return tenant and subject of the user. Raises `Fault` with a message for the user."""
        by_code = form.get("what") == "code"
        tenant, subject = _parse_name(form.get("name", ""))
        limits = {f"address {address}": _MAX_PER_ADDRESS}
        if not by_code:
            limits[f"name {tenant}/{subject}"] = _MAX_PER_NAME
        await self._count(limits)
        failed = False
        try:
            user = await (
                self._check_code(form.get("code", "")) if by_code else self._check_password(tenant, subject, form)
            )
            failed = user is None
        finally:
            if not failed:
                await self._uncount(limits)
        if user is None:
            message = "This code is invalid, expired or already used." if by_code else "Wrong name or password."
            raise Fault(Kind.UNAUTHENTICATED, message)
        return user

    async def _check_code(self, code: str) -> tuple[str, str] | None:
        return await self._browsers.use_code(code[:32]) if self._codes else None

    async def _check_password(self, tenant: str, subject: str, form: Mapping[str, str]) -> tuple[str, str] | None:
        if not self._passwords:
            return None
        user = await self._users.check_password(tenant, subject, form.get("password", ""))
        return None if user is None else (user.tenant, user.subject)

    async def _count(self, limits: Mapping[str, int]) -> None:
        """Count before the attempt: otherwise many concurrent attempts would pass before the first one fails."""
        counted: list[str] = []
        for name, limit in limits.items():
            if (seconds := await self._failures.count(name, limit, _WINDOW_SECONDS)) > 0:
                await self._uncount(counted)
                wait = max(1, round(seconds / 60))
                raise Fault(Kind.RATE_LIMITED, f"Too many attempts. Try again in {wait} min.", retry_after=seconds)
            counted.append(name)

    async def _uncount(self, names: Iterable[str]) -> None:
        for name in names:
            await self._failures.uncount(name, _WINDOW_SECONDS)


class MemoryFailureCounter:
    """`FailureCounter` of one process. The window starts with the first failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def count(self, name: str, limit: int, seconds: float) -> float:
        now = self._clock()
        count, ends = self._failures.get(name, (0, 0.0))
        count, ends = (count, ends) if now < ends else (0, now + seconds)
        if count >= limit:
            return ends - now
        self._failures[name] = (count + 1, ends)
        self._failures.move_to_end(name)
        if len(self._failures) > _MAX_NAMES:
            self._failures.popitem(last=False)
        return 0.0

    async def uncount(self, name: str, seconds: float) -> None:
        count, ends = self._failures.get(name, (0, 0.0))
        if count > 0:
            self._failures[name] = (count - 1, ends)


def _parse_name(name: str) -> tuple[str, str]:
    """Split into tenant and subject: `alice` belongs to the default tenant, `acme/alice` to acme."""
    tenant, slash, subject = name.strip()[:200].partition("/")
    return (tenant, subject) if slash else ("default", tenant)
