"""Tokens of an identity provider: which are for us, and who their claims speak of."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.auth.jwks import IssuerKeys
from gateway.auth.jwt import InvalidToken, Key
from gateway.auth.tokens import ProtectedResources, moment, scopes_of, word
from gateway.contract import Caller, Json

_NOT_ACCESS: Final = frozenset({"id", "refresh", "offline", "logout"})
"""What Keycloak writes into a token's own claim `typ` when it is something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """Where to find in a token what a `Caller` is made of."""

    tenant: str | None = None
    """Everybody's tenant; or else `tenant_claim` and `tenants` say it."""
    tenant_claim: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict[str, str])
    subject_claim: str = "sub"
    groups_claim: str = "groups"
    scopes_claim: str = "scope"
    scope_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Scopes or roles of theirs, and the scopes of ours that each stands for."""

    def caller(self, claims: Json, resource: str) -> Caller:
        """Raises `BadToken` for claims that name no tenant or nobody."""
        client = str(claims.get("client_id") or claims.get("azp") or "")[:256]
        # An answer about a client's own token may name nobody but the client (RFC 7662).
        itself = self.subject_claim == "sub" and "sub" not in claims and client
        subject = client if itself else word(claims, self.subject_claim)
        token = str(claims.get("jti") or "")[:256] or _digest(claims)
        return Caller(
            tenant=self._tenant(claims),
            subject=subject,
            # A token that a client got for itself speaks of the client.
            kind="service" if subject == client else "user",
            groups=frozenset(_texts(_at(claims, self.groups_claim))),
            scopes=self._scopes(claims),
            credential=str(claims.get("sid") or token)[:256],
            expires=moment(claims, "exp"),
            resource=resource,
            client=client,
            token=token,
            issued=moment(claims, "iat", 0.0),
        )

    def _tenant(self, claims: Json) -> str:
        if self.tenant is not None:
            return self.tenant
        found = self.tenants.get(str(_at(claims, self.tenant_claim)))
        if found is None:
            raise InvalidToken
        return found

    def _scopes(self, claims: Json) -> frozenset[str]:
        given: Any = _at(claims, self.scopes_claim)
        theirs = given.split() if isinstance(given, str) else _texts(given)
        ours = [each for scope in theirs for each in self.scope_map.get(scope, (scope,))]
        return scopes_of(" ".join(ours))


class ExternalIssuer:
    """`gateway.auth.tokens.Issuer` for one identity provider."""

    def __init__(
        self,
        name: str,
        keys: IssuerKeys,
        resources: ProtectedResources,
        claims: ClaimMapping,
        *,
        algorithms: frozenset[str],
        types: frozenset[str],
        audiences: frozenset[str],
    ) -> None:
        self.name = name
        self.algorithms = algorithms
        self.types = types
        self._keys = keys
        self._resources = resources
        self._claims = claims
        self._audiences = audiences

    async def key(self, kid: str | None) -> Key | None:
        return await self._keys.get(kid)

    def resource(self, audiences: frozenset[str]) -> str | None:
        """Our own addresses; and `/mcp` for those that the operator says stand for it."""
        return "/mcp" if audiences & self._audiences else self._resources.widest(audiences)

    def caller(self, claims: Json, resource: str) -> Caller:
        # An ID token is no access token, also where its header does not tell.
        if "nonce" in claims or "at_hash" in claims or str(claims.get("typ", "")).lower() in _NOT_ACCESS:
            raise InvalidToken
        return self._claims.caller(claims, resource)


def _at(claims: Json, path: str) -> Any:
    """A claim by name; `a.b` is b inside a, unless a claim has that very name."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = cast("Json", found).get(part) if isinstance(found, dict) else None
    return found


def _texts(given: Any) -> list[str]:
    values = cast("list[Any]", given) if isinstance(given, list) else []
    return [each for each in values if isinstance(each, str) and 0 < len(each) <= 256][:200]


def _digest(claims: Json) -> str:
    return hashlib.sha256(repr(sorted(claims.items(), key=lambda item: item[0])).encode()).hexdigest()[:32]
