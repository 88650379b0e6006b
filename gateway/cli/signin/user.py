"""The credential of a signed-in user: signs in once in the browser, then stores and refreshes the tokens."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.failure import print_stderr
from gateway.cli.signin.callback import CallbackResult, open_browser, serve_callback
from gateway.cli.signin.credential import AuthChallenge, ClientRegistration, CredentialRejected, CredentialStep
from gateway.cli.signin.token_store import StoredTokens, TokenStore

SIGN_IN_SECONDS: Final = 300.0
"""Seconds the user has to sign in."""
_MAX_RENEWALS: Final = 4
"""Maximum renewals per request: a refresh, a sign-in, a step-up, and one by another process."""


class UserSignIn:
    """Opens one browser window and sends one refresh at a time, even for concurrent requests of several processes.

    While the user signs in, requests that the current token allows continue.
    """

    def __init__(
        self,
        url: str,
        registration: ClientRegistration,
        store: TokenStore,
        *,
        open_url: Callable[[str], None] = open_browser,
        timeout: float = SIGN_IN_SECONDS,
    ) -> None:
        self._url = url
        self._registration = registration
        self._store = store
        self._open_url = open_url
        self._timeout = timeout
        self._stored = store.read()
        self._refresh_lock = asyncio.Lock()
        self._sign_in_lock = asyncio.Lock()
        self._failures: list[CredentialRejected] = []

    @property
    def rejection_hint(self) -> str:
        return "requires you to sign in, or a key in GATEHOUSE_TOKEN"

    async def token(self) -> str | None:
        stored = self._stored
        if stored is not None and stored.refresh_token and stored.is_stale(time.time()):
            # Refreshed before it expires; a failure now can be retried until then.
            with suppress(CredentialRejected, OSError):
                await self._refresh(stored.access_token)
        return self._stored and self._stored.access_token

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, interactive: bool
    ) -> CredentialStep | None:
        try:
            return await self._renew(challenge, token, done, interactive=interactive)
        except OSError as exc:
            folder = self._store.file.parent
            raise CredentialRejected(0, self._message(f"cannot use {folder}: {exc.strerror}")) from exc

    async def _renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, interactive: bool
    ) -> CredentialStep | None:
        if len(done) >= _MAX_RENEWALS or (CredentialStep.SIGNED_IN in done and challenge.status == 401):
            return None
        if self._has_other_token(token):
            return CredentialStep.FOUND
        if challenge.status == 401 and CredentialStep.REFRESHED not in done:
            step = await self._refresh(token)
            if step is not None:
                return step
        if not interactive or (challenge.wants_scope and self._is_granted(challenge, done)):
            return None
        failures = len(self._failures)
        async with self._sign_in_lock:
            if len(self._failures) > failures:
                raise self._failures[-1]  # the sign-in that this request also waited for failed
            async with self._store.lock("window"):
                if self._has_other_token(token):
                    return CredentialStep.FOUND
                await self._sign_in(challenge, self._stored)
        return CredentialStep.STEPPED_UP if challenge.wants_scope else CredentialStep.SIGNED_IN

    def _has_other_token(self, token: str | None) -> bool:
        """Whether the store has a newer token than this one."""
        self._stored = self._store.read() or self._stored
        return self._stored is not None and self._stored.access_token != token

    def _is_granted(self, challenge: AuthChallenge, done: Collection[CredentialStep]) -> bool:
        """Whether the scopes are already granted: another step-up would loop."""
        granted = frozenset(self._stored.scope.split()) if self._stored is not None else frozenset[str]()
        return CredentialStep.STEPPED_UP in done or (bool(challenge.scopes) and challenge.scopes <= granted)

    async def _refresh(self, token: str | None) -> CredentialStep | None:
        async with self._refresh_lock, self._store.lock("refresh"):
            if self._has_other_token(token):
                return CredentialStep.FOUND
            return (
                CredentialStep.REFRESHED
                if self._stored is not None and await self._send_refresh(self._stored)
                else None
            )

    async def _send_refresh(self, stored: StoredTokens) -> bool:
        # Imported late: the SDK is slow to load, and most starts find a valid token.
        from gateway.cli.signin.flow import ClientUnknownError, OAuthFlow

        if not stored.refresh_token:
            return False
        try:
            async with self._translate_errors():
                # A refresh does not use the redirect URI.
                renewed = await OAuthFlow(self._url, self._registration, stored, "http://127.0.0.1/callback").refresh()
        except ClientUnknownError:
            renewed = None
            self._save(replace(stored, client={}, refresh_token=None))
        if renewed is not None:
            self._save(renewed)
        return renewed is not None

    async def _sign_in(self, challenge: AuthChallenge, stored: StoredTokens | None) -> None:
        from gateway.cli.signin.flow import OAuthFlow

        try:
            async with self._translate_errors(), serve_callback(self._ports(stored)) as callback:

                async def wait(state: str) -> CallbackResult:
                    callback.expect(state)
                    try:
                        async with asyncio.timeout(self._timeout):
                            return await callback.wait()
                    except TimeoutError:
                        # A server that does not know the client does not redirect: register again next time.
                        if stored is not None:
                            self._save(replace(stored, client={}))
                        raise

                flow = OAuthFlow(
                    self._url, self._registration, self._matching_registration(stored, callback.url), callback.url
                )
                self._save(await flow.sign_in(challenge, self._open_url, wait))
        except CredentialRejected as exc:
            self._failures.append(exc)
            raise

    def _ports(self, stored: StoredTokens | None) -> tuple[int, ...]:
        if self._registration.port:
            return (self._registration.port,)
        # Some authorization servers accept only the registered port.
        known = [urlsplit(each).port or 0 for each in _redirects(stored)]
        return (*known[:1], 0)

    def _matching_registration(self, stored: StoredTokens | None, redirect: str) -> StoredTokens | None:
        """Drop a dynamic registration with another redirect URI, so that the client registers again."""
        if stored is None or redirect in _redirects(stored):
            return stored
        fixed = stored.client.get("client_id") in (self._registration.id, self._registration.document)
        return stored if fixed else replace(stored, client={})

    def _save(self, stored: StoredTokens) -> None:
        self._stored = stored
        try:
            self._store.write(stored)
        except OSError as exc:
            print_stderr(f"cannot write {self._store.file}: {exc.strerror}; the sign-in ends with this process")

    @asynccontextmanager
    async def _translate_errors(self) -> AsyncGenerator[None]:
        import httpx2

        from gateway.cli.signin.flow import FlowError

        try:
            yield
        except FlowError as exc:
            raise CredentialRejected(401, self._message(str(exc))) from exc
        except TimeoutError as exc:
            raise CredentialRejected(401, self._message(f"timed out after {self._timeout:g} s")) from exc
        except httpx2.HTTPError as exc:
            raise CredentialRejected(0, self._message(f"unreachable: {str(exc) or type(exc).__name__}")) from exc
        except OSError as exc:
            raise CredentialRejected(0, self._message(exc.strerror or type(exc).__name__)) from exc

    def _message(self, reason: str) -> str:
        return (
            f"{self._url} requires you to sign in, which failed: {reason}. "
            "Try again, or set GATEHOUSE_TOKEN (create a key: `gatehouse key create`)"
        )


def _redirects(stored: StoredTokens | None) -> list[str]:
    return list(stored.client.get("redirect_uris") or ()) if stored is not None else []
