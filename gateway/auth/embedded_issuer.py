"""The embedded token issuer: mints the gateway's own access tokens and maps their claims to a `Caller`."""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from gateway.auth.jwt import InvalidToken
from gateway.auth.signing_keys import ALGORITHM, TYPE, SigningKeys
from gateway.auth.tokens import ProtectedResources, parse_scopes, text_claim, time_claim
from gateway.contract import Caller, Json


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """Access that a user or service granted to a client. All tokens of one family share it."""

    tenant: str
    subject: str
    kind: Literal["user", "service"]
    groups: frozenset[str]
    scopes: frozenset[str]
    client: str
    resource: str
    """URL of the protected resource; the audience of the tokens."""
    family: str


class EmbeddedIssuer:
    """`gateway.auth.tokens.TokenIssuer` of the gateway itself; it also mints the tokens."""

    def __init__(
        self,
        name: str,
        resources: ProtectedResources,
        signing: SigningKeys,
        token_ttl: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.algorithms = frozenset((ALGORITHM,))
        self.types = frozenset((TYPE,))
        self.token_ttl = token_ttl
        self.key = signing.key
        self._resources = resources
        self._signing = signing
        self._clock = clock

    def mint(self, grant: OAuthGrant) -> str:
        issued = self._clock()
        now = int(issued)
        return self._signing.sign(
            {
                "iss": self.name,
                "sub": grant.subject,
                "aud": grant.resource,
                "exp": now + self.token_ttl,
                "nbf": now,
                "iat": now,
                # With fractions of a second, to order a token and a revocation within the same second.
                "made": issued,
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
        return self._resources.widest_endpoint(audiences)

    def caller(self, claims: Json, resource: str) -> Caller:
        kind: Any = claims.get("kind")
        scope: Any = claims.get("scope")
        groups: Any = claims.get("groups")
        if kind not in ("user", "service") or not isinstance(scope, str) or not isinstance(groups, list):
            raise InvalidToken
        return Caller(
            tenant=text_claim(claims, "tenant"),
            subject=text_claim(claims, "sub"),
            kind=kind,
            groups=frozenset(map(str, cast("Iterable[Any]", groups))),
            scopes=parse_scopes(scope),
            credential=text_claim(claims, "family"),
            expires=time_claim(claims, "exp"),
            resource=resource,
            client=text_claim(claims, "client_id"),
            token=text_claim(claims, "jti"),
            issued=time_claim(claims, "made", time_claim(claims, "iat", 0.0)),
        )


def new_family() -> str:
    return secrets.token_hex(12)
