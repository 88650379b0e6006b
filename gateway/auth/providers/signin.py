"""Sign-in of a browser at an identity provider: from the button on the consent page to the signed-in user."""

import base64
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

import httpx
from sqlalchemy import text

from gateway.auth.browser_sessions import UserKey
from gateway.auth.providers.federated_users import FederatedUsers
from gateway.auth.providers.identity import IdentityProvider, SignInRefused
from gateway.auth.providers.recheck import AccessPeriods, Recheck
from gateway.auth.sealing import Sealer
from gateway.auth.users import User, Users
from gateway.errors import Fault
from gateway.state.database import Database

PENDING_SECONDS: Final = 600.0
Pairs = Sequence[tuple[str, str]]
_log = logging.getLogger("gatehouse.identity")


@dataclass(frozen=True, slots=True)
class FinishedSignIn:
    """A user who returned from the provider, and the authorization request that the sign-in was for."""

    user: UserKey
    query: Pairs


class ProviderSignIn:
    """Signs users in at the configured providers.

    A pending sign-in is bound to the provider and to the browser that started it. It is used once, within ten minutes.
    """

    def __init__(
        self,
        *,
        database: Database,
        providers: Mapping[str, IdentityProvider],
        federated: FederatedUsers,
        users: Users,
        recheck: Recheck,
        periods: AccessPeriods,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._providers = providers
        self._federated = federated
        self._users = users
        self._recheck = recheck
        self._periods = periods
        self._clock = clock
        self.labels = [(name, provider.config.label) for name, provider in providers.items()]
        self.session_seconds = periods.max_age
        self.recheck_seconds = periods.recheck

    async def begin(self, name: str, query: Pairs, browser: str) -> str:
        """Return the URL at the provider. `query` is the authorization request, `browser` the secret of its cookie.

        Raises `SignInRefused` if the provider is unknown or cannot be reached.
        """
        provider = self._provider(name)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        prompt = dict(query).get("prompt", "")
        try:
            url = await provider.authorization_url(
                state=state, nonce=nonce, challenge=challenge, prompt="login" if prompt == "login" else ""
            )
        except (Fault, httpx.HTTPError) as exc:
            raise _unreachable(provider, exc) from exc
        request = [[key, value] for key, value in query if key != "prompt"]
        row = {
            "digest": _digest(state),
            "provider": name,
            "browser": _digest(browser),
            # Only the browser's redirect carries the state, so a copy of the database opens no pending sign-in.
            "sealed": Sealer.from_token("sign-in", state).seal(
                {"nonce": nonce, "verifier": verifier, "query": request}, name
            ),
            "expires": self._clock() + PENDING_SECONDS,
        }
        async with self._database.transaction() as connection:
            await connection.execute(_DELETE_EXPIRED, {"now": self._clock()})
            await connection.execute(_INSERT, row)
        return url

    async def finish(self, name: str, response: Mapping[str, str], browser: str) -> FinishedSignIn:
        """Complete a sign-in with the query of the provider's redirect. Raises `SignInRefused`."""
        provider = self._provider(name)
        state = response.get("state", "")
        pending = await self._take(name, state, browser)
        content = None if pending is None else Sealer.from_token("sign-in", state).open(pending, name)
        if content is None:
            raise SignInRefused("This sign-in expired or was started in another browser. Start again.")
        try:
            await provider.check_issuer(response.get("iss"))
            if "code" not in response:
                error = response.get("error", "no code")[:60]
                raise SignInRefused(f"{provider.config.label} did not sign you in ({error}). Start again.")
            identity = await provider.exchange(
                response["code"], verifier=str(content["verifier"]), nonce=str(content["nonce"])
            )
            access = await self._recheck.access(provider.config, identity)
        except (Fault, httpx.HTTPError) as exc:
            raise _unreachable(provider, exc) from exc
        now = self._clock()
        until = self._periods.valid_until(identity, checked=now, signed_in=now)
        user = await self._federated.save(name, identity, access, valid_until=until, signed_in=True)
        _log.info("identity: %s/%s signed in at provider %s", *user, name)
        return FinishedSignIn(user, [(str(key), str(value)) for key, value in content["query"]])

    async def confirm(self, user: UserKey, *, max_age: float = 0.0) -> bool:
        """Return whether the provider still confirms a user; always true for a local user. Raises `Fault`."""
        return await self._recheck.confirm(user, max_age=max_age)

    async def find_user(self, user: UserKey) -> User | None:
        return await self._users.find(*user)

    async def log_out(self, name: str, token: str) -> None:
        """End all sessions and tokens of the user that a logout token names. Raises `SignInRefused`, `Fault`."""
        request = await self._provider(name).verify_logout(token)
        user = None
        if request.subject:
            user = await self._federated.find_account(request.issuer, request.subject)
        elif request.sid:
            user = await self._federated.find_session(request.issuer, request.sid)
        if user is None:
            return
        _log.info("identity: provider %s logged out %s/%s; sessions and tokens ended", name, *user.key)
        await self._users.end_sessions(*user.key)

    def _provider(self, name: str) -> IdentityProvider:
        provider = self._providers.get(name)
        if provider is None:
            raise SignInRefused("There is no such identity provider here.")
        return provider

    async def _take(self, provider: str, state: str, browser: str) -> str | None:
        """Return the sealed content of a pending sign-in and delete it; None if it is not this browser's."""
        one = {"digest": _digest(state), "now": self._clock()}
        async with self._database.transaction() as connection:
            row = (await connection.execute(_FIND, one)).one_or_none()
            # A browser that did not start the sign-in must not be able to end it either.
            if row is None or row.provider != provider or not compare_digest(row.browser, _digest(browser)):
                return None
            deleted = await connection.execute(_DELETE, one)
        return row.sealed if deleted.rowcount == 1 else None


def _unreachable(provider: IdentityProvider, exc: Exception) -> SignInRefused:
    reason = exc.message if isinstance(exc, Fault) else "no valid HTTP response"
    _log.warning("identity: sign-in at provider %s failed: %s", provider.config.name, reason)
    return SignInRefused(f"{provider.config.label} cannot be used at the moment. Try again later. ({reason})")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_INSERT = text(
    "INSERT INTO provider_sign_ins (digest, provider, browser, sealed, expires_at)"
    " VALUES (:digest, :provider, :browser, :sealed, :expires)"
)
_FIND = text("SELECT * FROM provider_sign_ins WHERE digest = :digest AND expires_at > :now")
_DELETE = text("DELETE FROM provider_sign_ins WHERE digest = :digest")
_DELETE_EXPIRED = text("DELETE FROM provider_sign_ins WHERE expires_at <= :now")
