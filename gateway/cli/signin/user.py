"""A person as a credential: asked once, in the browser; then it is their tokens that are kept and refreshed."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from gateway.cli.failure import say
from gateway.cli.signin.callback import CallbackResult, listening, open_page
from gateway.cli.signin.credential import AuthChallenge, ClientRegistration, CredentialRejected, CredentialStep
from gateway.cli.signin.token_store import StoredTokens, TokenStore

PATIENCE: Final = 300.0
"""Seconds that a person has for signing in."""
_MOST: Final = 4
"""Renewals for one request: enough for a refresh, a sign-in, a step up, and another's doing in between."""


class UserSignIn:
    """Whatever many requests want at once, one window is opened and one refresh is sent, also by several processes.

    While somebody looks at the window, requests that need no more than what is there go on.
    """

    def __init__(
        self,
        url: str,
        program: ClientRegistration,
        shelf: TokenStore,
        *,
        show: Callable[[str], None] = open_page,
        patience: float = PATIENCE,
    ) -> None:
        self._url = url
        self._program = program
        self._shelf = shelf
        self._show = show
        self._patience = patience
        self._kept = shelf.read()
        self._refreshing = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._failures: list[CredentialRejected] = []

    @property
    def refusal(self) -> str:
        return "wants you to sign in, or a key in GATEHOUSE_TOKEN"

    async def token(self) -> str | None:
        kept = self._kept
        if kept is not None and kept.refresh_token and kept.stale(time.time()):
            # Before it is refused; should that not work now, there is time until it is.
            with suppress(CredentialRejected, OSError):
                await self._refresh(kept.access_token)
        return self._kept and self._kept.access_token

    async def renew(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, asking: bool
    ) -> CredentialStep | None:
        try:
            return await self._renewed(challenge, token, done, asking=asking)
        except OSError as exc:
            folder = self._shelf.file.parent
            raise CredentialRejected(0, self._words(f"{folder} cannot be used: {exc.strerror}")) from exc

    async def _renewed(
        self, challenge: AuthChallenge, token: str | None, done: Collection[CredentialStep], *, asking: bool
    ) -> CredentialStep | None:
        if len(done) >= _MOST or (CredentialStep.SIGNED_IN in done and challenge.status == 401):
            return None
        if self._differs(token):
            return CredentialStep.FOUND
        if challenge.status == 401 and CredentialStep.REFRESHED not in done:
            step = await self._refresh(token)
            if step is not None:
                return step
        if not asking or (challenge.wants_scope and self._pointless(challenge, done)):
            return None
        before = len(self._failures)
        async with self._asking:
            if len(self._failures) > before:
                raise self._failures[-1]  # of the window that this waited for too
            async with self._shelf.alone("window"):
                if self._differs(token):
                    return CredentialStep.FOUND
                await self._ask(challenge, self._kept)
        return CredentialStep.STEPPED_UP if challenge.wants_scope else CredentialStep.SIGNED_IN

    def _differs(self, token: str | None) -> bool:
        """Whether there is another token than this one by now."""
        self._kept = self._shelf.read() or self._kept
        return self._kept is not None and self._kept.access_token != token

    def _pointless(self, challenge: AuthChallenge, done: Collection[CredentialStep]) -> bool:
        """To ask again for what is granted would lead back here, and again."""
        granted = frozenset(self._kept.scope.split()) if self._kept is not None else frozenset[str]()
        return CredentialStep.STEPPED_UP in done or (bool(challenge.scopes) and challenge.scopes <= granted)

    async def _refresh(self, token: str | None) -> CredentialStep | None:
        async with self._refreshing, self._shelf.alone("refresh"):
            if self._differs(token):
                return CredentialStep.FOUND
            return CredentialStep.REFRESHED if self._kept is not None and await self._refreshed(self._kept) else None

    async def _refreshed(self, kept: StoredTokens) -> bool:
        # The SDK takes a while to load, and most starts find a token that is still good.
        from gateway.cli.signin.flow import ClientUnknownError, OAuthFlow

        if not kept.refresh_token:
            return False
        try:
            async with self._explained():
                # Nobody comes back anywhere from a refresh.
                renewed = await OAuthFlow(self._url, self._program, kept, "http://127.0.0.1/callback").refresh()
        except ClientUnknownError:
            renewed = None
            self._keep(replace(kept, client={}, refresh_token=None))
        if renewed is not None:
            self._keep(renewed)
        return renewed is not None

    async def _ask(self, challenge: AuthChallenge, kept: StoredTokens | None) -> None:
        from gateway.cli.signin.flow import OAuthFlow

        try:
            async with self._explained(), listening(self._ports(kept)) as callback:

                async def wait(state: str) -> CallbackResult:
                    callback.expect(state)
                    try:
                        async with asyncio.timeout(self._patience):
                            return await callback.returned()
                    except TimeoutError:
                        # An authorization server that does not know the client sends nobody back.
                        if kept is not None:
                            self._keep(replace(kept, client={}))
                        raise

                flow = OAuthFlow(
                    self._url, self._program, self._as_known_there(kept, callback.address), callback.address
                )
                self._keep(await flow.sign_in(challenge, self._show, wait))
        except CredentialRejected as exc:
            self._failures.append(exc)
            raise

    def _ports(self, kept: StoredTokens | None) -> tuple[int, ...]:
        if self._program.port:
            return (self._program.port,)
        # Not every authorization server takes another port than the one that was registered.
        known = [urlsplit(each).port or 0 for each in _redirects(kept)]
        return (*known[:1], 0)

    def _as_known_there(self, kept: StoredTokens | None, redirect: str) -> StoredTokens | None:
        """Without a registration that says another address to come back to: it is made anew."""
        if kept is None or redirect in _redirects(kept):
            return kept
        elsewhere = kept.client.get("client_id") in (self._program.id, self._program.document)
        return kept if elsewhere else replace(kept, client={})

    def _keep(self, kept: StoredTokens) -> None:
        self._kept = kept
        try:
            self._shelf.write(kept)
        except OSError as exc:
            say(f"the sign-in is good until this ends: cannot write {self._shelf.file}: {exc.strerror}")

    @asynccontextmanager
    async def _explained(self) -> AsyncGenerator[None]:
        import httpx2

        from gateway.cli.signin.flow import FlowError

        try:
            yield
        except FlowError as exc:
            raise CredentialRejected(401, self._words(str(exc))) from exc
        except TimeoutError as exc:
            raise CredentialRejected(401, self._words(f"nobody did within {self._patience:g} s")) from exc
        except httpx2.HTTPError as exc:
            raise CredentialRejected(0, self._words(f"cannot be reached: {str(exc) or type(exc).__name__}")) from exc
        except OSError as exc:
            raise CredentialRejected(0, self._words(exc.strerror or type(exc).__name__)) from exc

    def _words(self, reason: str) -> str:
        return (
            f"{self._url} wants you to sign in, and that did not work: {reason}. "
            "Or set GATEHOUSE_TOKEN (`gatehouse key create` makes a key)"
        )


def _redirects(kept: StoredTokens | None) -> list[str]:
    return list(kept.client.get("redirect_uris") or ()) if kept is not None else []
