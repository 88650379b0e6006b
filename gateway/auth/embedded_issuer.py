"""The gateway as an issuer of its own: what its access tokens say, and who they speak of."""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from gateway.auth.jwt import InvalidToken
from gateway.auth.signing_keys import ALGORITHM, TYPE, SigningKeys
from gateway.auth.tokens import ProtectedResources, moment, scopes_of, word
from gateway.contract import Caller, Json


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """What somebody granted to a client: what every token of one family has in common."""

    tenant: str
    subject: str
    kind: Literal["user", "service"]
    groups: frozenset[str]
    scopes: frozenset[str]
    client: str
    resource: str
    """The address it is for."""
    family: str


class EmbeddedIssuer:
    """`gateway.auth.tokens.Issuer` for our own tokens, which it also makes."""

    def __init__(
        self,
        name: str,
        resources: ProtectedResources,
        signing: SigningKeys,
        lasts: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.algorithms = frozenset((ALGORITHM,))
        self.types = frozenset((TYPE,))
        self.lasts = lasts
        self.key = signing.key
        self._resources = resources
        self._signing = signing
        self._clock = clock

    def mint(self, grant: OAuthGrant) -> str:
        made = self._clock()
        now = int(made)
        return self._signing.sign(
            {
                "iss": self.name,
                "sub": grant.subject,
                "aud": grant.resource,
                "exp": now + self.lasts,
                "nbf": now,
                "iat": now,
                # To the moment, so that what was made in the very second of a revocation is on the right side of it.
                "made": made,
                "jti": secrets.token_urlsafe(16),
                "client_id": grant.client,
                "scope": " ".join(sorted(grant.scopes)),
                "tenant": grant.tenant,
                "kind": grant.kind,
                "groups": sorted(grant.groups),
                "family": grant.family,
            }
        )

    def resource(self, audiences: frozenset[str]) -> str | None:
        return self._resources.widest(audiences)

    def caller(self, claims: Json, resource: str) -> Caller:
        kind: Any = claims.get("kind")
        scope: Any = claims.get("scope")
        groups: Any = claims.get("groups")
        if kind not in ("user", "service") or not isinstance(scope, str) or not isinstance(groups, list):
            raise InvalidToken
        return Caller(
            tenant=word(claims, "tenant"),
            subject=word(claims, "sub"),
            kind=kind,
            groups=frozenset(map(str, cast("Iterable[Any]", groups))),
            scopes=scopes_of(scope),
            credential=word(claims, "family"),
            expires=moment(claims, "exp"),
            resource=resource,
            client=word(claims, "client_id"),
            token=word(claims, "jti"),
            issued=moment(claims, "made", moment(claims, "iat", 0.0)),
        )


def new_family() -> str:
    return secrets.token_hex(12)
