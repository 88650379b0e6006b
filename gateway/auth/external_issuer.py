"""Tokens of an external identity provider: checks their audience and maps their claims to a `Caller`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.auth.jwks import IssuerKeys
from gateway.auth.jwt import InvalidToken, Key
from gateway.auth.tokens import ProtectedResources, parse_scopes, text_claim, time_claim
from gateway.contract import Caller, Json

_OTHER_TOKEN_TYPES: Final = frozenset({"id", "refresh", "offline", "logout"})
"""Values of Keycloak's `typ` claim for tokens that are not access tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """Configured names of the claims that make up a `Caller`."""

    tenant: str | None = None
    """Tenant of all tokens; if None, `tenant_claim` and `tenants` determine it."""
    tenant_claim: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict[str, str])
    subject_claim: str = "sub"
    groups_claim: str = "groups"
    scopes_claim: str = "scope"
    scope_map: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Maps a scope or role of the issuer to gateway scopes; unmapped ones stay as they are."""

    def caller(self, claims: Json, resource: str) -> Caller:
        """Return the caller of verified claims. Raises `InvalidToken` if tenant or subject is missing."""
        client = str(claims.get("client_id") or claims.get("azp") or "")[:256]
        # An introspection response for a client's own token may omit `sub` (RFC 7662).
        client_only = self.subject_claim == "sub" and "sub" not in claims and client
        subject = client if client_only else text_claim(claims, self.subject_claim)
        token = str(claims.get("jti") or "")[:256] or _digest(claims)
        return Caller(
            tenant=self._tenant(claims),
            subject=subject,
            # The subject of a client-credentials token is the client itself.
            kind="service" if subject == client else "user",
            groups=frozenset(_strings(_claim(claims, self.groups_claim))),
            scopes=self._scopes(claims),
            credential=str(claims.get("sid") or token)[:256],
            expires=time_claim(claims, "exp"),
            resource=resource,
            client=client,
            token=token,
            issued=time_claim(claims, "iat", 0.0),
        )

    def _tenant(self, claims: Json) -> str:
        if self.tenant is not None:
            return self.tenant
        found = self.tenants.get(str(_claim(claims, self.tenant_claim)))
        if found is None:
            raise InvalidToken
        return found

    def _scopes(self, claims: Json) -> frozenset[str]:
        value: Any = _claim(claims, self.scopes_claim)
        issuer_scopes = value.split() if isinstance(value, str) else _strings(value)
        scopes = [each for scope in issuer_scopes for each in self.scope_map.get(scope, (scope,))]
        return parse_scopes(" ".join(scopes))


class ExternalIssuer:
    """`gateway.auth.tokens.TokenIssuer` of one identity provider."""

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
        """Return the endpoint of the audiences; the configured audiences stand for `/mcp`."""
        return "/mcp" if audiences & self._audiences else self._resources.widest_endpoint(audiences)

    def caller(self, claims: Json, resource: str) -> Caller:
        # Reject ID and refresh tokens, even if their header does not identify them.
        if "nonce" in claims or "at_hash" in claims or str(claims.get("typ", "")).lower() in _OTHER_TOKEN_TYPES:
            raise InvalidToken
        return self._claims.caller(claims, resource)


def _claim(claims: Json, path: str) -> Any:
    """Return a claim by name. `a.b` is `b` inside `a`, unless a claim is named `a.b`."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = cast("Json", found).get(part) if isinstance(found, dict) else None
    return found


def _strings(value: Any) -> list[str]:
    values = cast("list[Any]", value) if isinstance(value, list) else []
    return [each for each in values if isinstance(each, str) and 0 < len(each) <= 256][:200]


def _digest(claims: Json) -> str:
    return hashlib.sha256(repr(sorted(claims.items(), key=lambda item: item[0])).encode()).hexdigest()[:32]
