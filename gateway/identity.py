"""Who may call, composed: keys and tokens, where clients get them, and what ends with them."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter

from gateway.auth.credentials import Credentials, key_id
from gateway.auth.embedded import Embedded
from gateway.auth.keys import DEFAULT_SCOPES, Keys
from gateway.auth.revocations import Revocations
from gateway.auth.signing import Signing
from gateway.auth.tokens import LEEWAY, Issuer, Resources, Tokens
from gateway.contract import Caller
from gateway.edge.address import client_address, within
from gateway.edge.bearer import Bearer
from gateway.edge.challenge import Challenge, PlainChallenge
from gateway.edge.metadata import metadata_router
from gateway.edge.tenure import Tenures
from gateway.settings import Settings
from gateway.state.database import Database
from gateway.state.secrets import load_secret

BRIDGE_SCOPES: Final = ("bridge:roblox", "bridge:godot")


class Identity:
    """Opened once by the composition root. `authenticate` is what every door asks; `routers` are the plain routes."""

    def __init__(self, settings: Settings, database: Database, public_url: str) -> None:
        self._settings = settings
        self._database = database
        self._public_url = public_url
        self._secrets: Path = settings.data_dir / "secrets"
        self.keys = Keys(database, load_secret(self._secrets, "pepper"))
        self.tenures = Tenures()
        self.routers: list[APIRouter] = []
        self.challenge: Challenge | None = None

    @classmethod
    async def open(
        cls, settings: Settings, database: Database, public_url: str, served: Callable[[str], bool]
    ) -> "Identity":
        """`served` says which endpoints there are."""
        identity = cls(settings, database, public_url)
        await identity._build(served)
        return identity

    async def _build(self, served: Callable[[str], bool]) -> None:
        settings = self._settings
        self.revocations = await Revocations.open(self._database)
        resources = Resources(self._public_url)
        issuers: dict[str, Issuer] = {}
        if settings.auth.mode == "embedded":
            self.signing = await Signing.open(self._database, load_secret(self._secrets, "signing"))
            self.embedded = Embedded(self._public_url, resources, self.signing, settings.auth.access_token_seconds)
            issuers[self.embedded.name] = self.embedded
        tokens = Tokens(issuers, self.revocations) if issuers else None
        self.credentials = Credentials(self.keys, tokens, self.revocations)
        if issuers:
            self.challenge = Challenge(self._public_url, settings.auth.scopes, served)
            self.routers.append(metadata_router(self._public_url, [*issuers], settings.auth.scopes, served))
        self._bearer = Bearer(self.credentials.verify, leeway=LEEWAY, key_id=key_id)
        await self.credentials.on_revoke(self._bearer.forget)
        self.unauthenticated = (self.challenge or PlainChallenge()).unauthenticated
        self.authenticate = self._let_anyone_in() if settings.auth.mode == "none" else self._ask()

    def watch(
        self, good: Callable[[Caller], Awaitable[bool]], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> Callable[[], None]:
        """What to call when something was revoked: open streams that rest on it end."""
        return lambda: spawn(self.tenures.review(good))

    async def good(self, caller: Caller) -> bool:
        return self._settings.auth.mode == "none" or await self.credentials.good(caller)

    async def close(self) -> None:
        await self.keys.close()

    def _let_anyone_in(self) -> Callable[[Mapping[str, str], str], Awaitable[Caller]]:
        anyone = Caller("default", "anonymous", scopes=frozenset((*DEFAULT_SCOPES, *BRIDGE_SCOPES)))

        async def let_in(headers: Mapping[str, str], address: str) -> Caller:
            return anyone

        return let_in

    def _ask(self) -> Callable[[Mapping[str, str], str], Awaitable[Caller]]:
        bearer, trusted = self._bearer, partial(within, self._settings.server.trusted_proxies)

        async def authenticate(headers: Mapping[str, str], address: str) -> Caller:
            given = headers.get("authorization")
            if given is None and (key := headers.get("x-api-key")) is not None:
                given = f"Bearer {key}"
            return await bearer.caller(given, client_address(address, headers.get("x-forwarded-for"), trusted))

        return authenticate
