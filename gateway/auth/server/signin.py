"""Proving who one is: a password, or in the local profile a one-time code. Guessing is slowed down."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.auth.browser_sessions import BrowserSessions
from gateway.auth.users import Users
from gateway.errors import Fault, Kind

_WINDOW: Final = 300.0
_MOST_HERE: Final = 10
"""Failures of one address, in all, within a window; those that are being tried count until they are good."""
_MOST_ANYWHERE: Final = 50
"""Failures at one name, from anywhere: many more, so that nobody is easily locked out by others."""
_KEPT: Final = 10_000


class FailureCounter(Protocol):
    """How often something failed lately: in this process, or in all of them."""

    async def take(self, name: str, most: int, seconds: float) -> float:
        """Count one more, and 0; where it failed so often in that time already, how long until it may be tried."""
        ...

    async def give_back(self, name: str, seconds: float) -> None:
        """It was no failure after all."""
        ...


class SignIn:
    def __init__(self, users: Users, browsers: BrowserSessions, tally: FailureCounter, *, local: bool) -> None:
        self._users = users
        self._browsers = browsers
        self._tally = tally
        self._local = local

    async def ways(self) -> tuple[bool, bool]:
        """Whether a code is taken, and whether a password."""
        if not self._local:
            return False, True
        return True, any(user.has_password for user in await self._users.list())

    async def attempt(self, form: Mapping[str, str], address: str) -> tuple[str, str]:
        """Who signed in. Raises `Fault` with what to tell the person."""
        by_code = form.get("what") == "code"
        tenant, subject = _named(form.get("name", ""))
        counted = {f"address {address}": _MOST_HERE}
        if not by_code:
            counted[f"name {tenant}/{subject}"] = _MOST_ANYWHERE
        await self._count(counted)
        failed = False
        try:
            who = await (self._code(form.get("code", "")) if by_code else self._password(tenant, subject, form))
            failed = who is None
        finally:
            if not failed:
                await self._give_back(counted)
        if who is None:
            words = "That code is not good, or was used." if by_code else "That name and password do not go together."
            raise Fault(Kind.UNAUTHENTICATED, words)
        return who

    async def _code(self, code: str) -> tuple[str, str] | None:
        return await self._browsers.use_code(code[:32]) if self._local else None

    async def _password(self, tenant: str, subject: str, form: Mapping[str, str]) -> tuple[str, str] | None:
        user = await self._users.check(tenant, subject, form.get("password", ""))
        return None if user is None else (user.tenant, user.subject)

    async def _count(self, counted: Mapping[str, int]) -> None:
        """Before it is tried: whoever tries many at once would otherwise have tried them all by the time one failed."""
        taken: list[str] = []
        for name, most in counted.items():
            if (left := await self._tally.take(name, most, _WINDOW)) > 0:
                await self._give_back(taken)
                wait = max(1, round(left / 60))
                raise Fault(Kind.RATE_LIMITED, f"Too many attempts. Try again in {wait} min.", retry_after=left)
            taken.append(name)

    async def _give_back(self, names: Iterable[str]) -> None:
        for name in names:
            await self._tally.give_back(name, _WINDOW)


class MemoryFailureCounter:
    """`Tally` of one process; the window begins with the first failure."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    async def take(self, name: str, most: int, seconds: float) -> float:
        now = self._clock()
        count, ends = self._failures.get(name, (0, 0.0))
        count, ends = (count, ends) if now < ends else (0, now + seconds)
        if count >= most:
            return ends - now
        self._failures[name] = (count + 1, ends)
        self._failures.move_to_end(name)
        if len(self._failures) > _KEPT:
            self._failures.popitem(last=False)
        return 0.0

    async def give_back(self, name: str, seconds: float) -> None:
        count, ends = self._failures.get(name, (0, 0.0))
        if count > 0:
            self._failures[name] = (count - 1, ends)


def _named(name: str) -> tuple[str, str]:
    """`alice` is of the default tenant, `acme/alice` of acme."""
    tenant, slash, subject = name.strip()[:200].partition("/")
    return (tenant, subject) if slash else ("default", tenant)
