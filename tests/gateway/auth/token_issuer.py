"""An embedded issuer with its own database, for token tests without a gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.auth.embedded_issuer import EmbeddedIssuer, OAuthGrant
from gateway.auth.revocations import Revocations
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.tokens import AccessTokens, ProtectedResources
from gateway.state.database import Database

PUBLIC = "https://gw.example"
SECRET = b"s" * 32
ALICE = OAuthGrant(
    tenant="acme",
    subject="alice",
    kind="user",
    groups=frozenset({"dev"}),
    scopes=frozenset({"mcp:list", "mcp:call:write"}),
    client="client-1",
    resource=f"{PUBLIC}/mcp",
    family="family-1",
)


class Clock:
    """A clock that tests set by hand."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class IssuerFixture:
    database: Database
    signing: SigningKeys
    embedded: EmbeddedIssuer
    revocations: Revocations
    tokens: AccessTokens
    clock: Clock

    def mint(self, **changes: Any) -> str:
        return self.embedded.mint(replace(ALICE, **changes))


@asynccontextmanager
async def open_issuer(folder: Path) -> AsyncIterator[IssuerFixture]:
    clock = Clock()
    database = await Database.open(folder)
    try:
        signing = await SigningKeys.open(database, SECRET)
        embedded = EmbeddedIssuer(PUBLIC, ProtectedResources(PUBLIC), signing, 600, clock=clock)
        revocations = Revocations(database, clock=clock)
        await database.follow("revocations", revocations.load)
        tokens = AccessTokens({PUBLIC: embedded}, revocations, clock=clock)
        yield IssuerFixture(database, signing, embedded, revocations, tokens, clock)
    finally:
        await database.close()
