"""External identity providers that misbehave or are unreachable, with a mocked provider."""

import asyncio
from typing import Any

import httpx
import pytest
import respx
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from gateway.auth.external_issuer import ClaimMapping, ExternalIssuer
from gateway.auth.introspection import TokenIntrospection
from gateway.auth.jwks import IssuerKeys
from gateway.auth.jwt import InvalidToken
from gateway.auth.tokens import ProtectedResources
from gateway.errors import Fault, Kind
from tests.gateway.auth.token_issuer import PUBLIC, Clock

ISSUER = "https://idp.example/realms/acme"
DISCOVERY = "https://idp.example/.well-known/oauth-authorization-server/realms/acme"
JWKS = "https://idp.example/keys"
Json = dict[str, Any]
KEY = ECKey.generate_key("P-256", private=True, parameters={"kid": "k1"})


def published(*keys: Any, **extra: Any) -> Json:
    return {"keys": [key.as_dict(private=False) | {"kid": key.kid} | extra for key in keys]}


@pytest.fixture
def idp() -> Any:
    with respx.mock(assert_all_called=False) as router:
        router.get(DISCOVERY).respond(json={"issuer": ISSUER, "jwks_uri": JWKS})
        router.get(JWKS).respond(json=published(KEY))
        router.get(f"{ISSUER}/.well-known/openid-configuration").respond(404)
        yield router


async def test_concurrent_lookups_share_one_fetch(idp: Any) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER)
        found = await asyncio.gather(*(keys.get("k1") for _ in range(20)))
    assert all(key is not None for key in found)
    assert idp.routes[1].call_count == 1


async def test_threat_6_unknown_kid_causes_at_most_two_fetches_a_minute(idp: Any) -> None:
    clock = Clock(0)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER, clock=clock)
        await keys.get("k1")
        for kid in ("a", "b", "../c", "d' OR 1=1"):
            assert await keys.get(kid) is None
        assert idp.routes[1].call_count == 1
        clock.now += 31
        for kid in ("a", "b"):
            assert await keys.get(kid) is None
        assert idp.routes[1].call_count == 2


async def test_new_key_of_the_provider_is_found(idp: Any) -> None:
    clock = Clock(0)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER, clock=clock)
        await keys.get("k1")
        fresh = ECKey.generate_key("P-256", private=True, parameters={"kid": "k2"})
        idp.routes[1].respond(json=published(KEY, fresh))
        clock.now += 31
        assert await keys.get("k2") is not None


async def test_cached_keys_stay_valid_for_a_day_while_the_provider_is_unreachable(idp: Any) -> None:
    clock = Clock(0)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER, clock=clock)
        await keys.get("k1")
        for route in idp.routes:
            route.mock(side_effect=httpx.ConnectError)
        clock.now += 3600
        assert await keys.get("k1") is not None
        clock.now += 86400
        with pytest.raises(Fault) as caught:
            await keys.get("k1")
    assert caught.value.kind is Kind.UNAVAILABLE


async def test_lookup_fails_as_unavailable_if_the_provider_was_never_reached(idp: Any) -> None:
    for route in idp.routes:
        route.respond(500)
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault) as caught:
            await IssuerKeys(http, ISSUER).get("k1")
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("issuer", ["https://evil.example", ISSUER + "/", ISSUER.upper(), None])
async def test_threat_6_document_of_another_issuer_is_rejected(idp: Any, issuer: str | None) -> None:
    idp.routes[0].respond(json={"issuer": issuer, "jwks_uri": JWKS})
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault):
            await IssuerKeys(http, ISSUER).get("k1")
    assert idp.routes[1].call_count == 0


INVALID_SETS: dict[str, Any] = {
    "none": {"keys": []},
    "ten thousand": {"keys": [{"kty": "EC", "kid": str(n)} for n in range(10_000)]},
    "no list": {"keys": {"k1": {}}},
    "not an object": [],
}


@pytest.mark.parametrize("name", INVALID_SETS)
async def test_threat_6_invalid_key_set_is_rejected(idp: Any, name: str) -> None:
    idp.routes[1].respond(json=INVALID_SETS[name])
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault):
            await IssuerKeys(http, ISSUER).get("k1")


async def test_threat_6_weak_private_duplicate_and_unsupported_keys_are_ignored(idp: Any) -> None:
    weak = RSAKey.generate_key(1024, parameters={"kid": "weak"}, auto_kid=False)
    twin = ECKey.generate_key("P-256", private=True, parameters={"kid": "twin"})
    curve = ECKey.generate_key("P-384", private=True, parameters={"kid": "curve"})
    document = published(KEY, weak, twin, twin, curve)
    document["keys"] += [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        KEY.as_dict(private=True) | {"kid": "leaked"},
        KEY.as_dict(private=False) | {"kid": "enc", "use": "enc"},
        {"kty": "EC", "crv": "P-256", "x": "!", "y": "!", "kid": "broken"},
        "text",
    ]
    idp.routes[1].respond(json=document)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER)
        assert await keys.get("k1") is not None
        for kid in ("weak", "twin", "curve", "secret", "leaked", "enc", "broken"):
            assert await keys.get(kid) is None, kid


# ---- claims


def test_claims_are_read_from_the_configured_names() -> None:
    mapping = ClaimMapping(
        tenant_claim="org.id",
        tenants={"o-1": "acme"},
        groups_claim="realm_access.roles",
        scopes_claim="realm_access.roles",
        scope_map={"tools": ("mcp:list", "mcp:call"), "other": ()},
        subject_claim="preferred_username",
    )
    claims: Json = {
        "org": {"id": "o-1"},
        "realm_access": {"roles": ["tools", "other", 7]},
        "preferred_username": "alice",
        "azp": "web",
        "exp": 2_000_000_000,
        "jti": "t1",
    }
    caller = mapping.caller(claims, "/mcp")
    assert (caller.principal, caller.client, caller.token) == ("acme/user:alice", "web", "t1")
    assert (caller.groups, caller.scopes) == ({"tools", "other"}, {"mcp:list", "mcp:call"})
    for wrong in ({"org": {"id": "o-2"}}, {"org": None}, {"preferred_username": ""}, {"preferred_username": 7}):
        with pytest.raises(InvalidToken):
            mapping.caller({**claims, **wrong}, "/mcp")


def _external(http: httpx.AsyncClient, **more: Any) -> ExternalIssuer:
    options: Json = {
        "algorithms": frozenset({"ES256"}),
        "types": frozenset({"at+jwt", "jwt"}),
        "audiences": frozenset({"api://gatehouse"}),
        **more,
    }
    return ExternalIssuer(
        ISSUER, IssuerKeys(http, ISSUER), ProtectedResources(PUBLIC), ClaimMapping(tenant="acme"), **options
    )


@pytest.mark.parametrize(
    ("audiences", "endpoint"),
    [
        ({"api://gatehouse"}, "/mcp"),
        ({f"{PUBLIC}/mcp/core"}, "/mcp/core"),
        ({"account", f"{PUBLIC}/mcp"}, "/mcp"),
        ({"account"}, None),
        ({"api://gatehouse2"}, None),
    ],
)
async def test_configured_audience_stands_for_the_main_endpoint(audiences: set[str], endpoint: str | None) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        assert _external(http).resource(frozenset(audiences)) == endpoint


@pytest.mark.parametrize("more", [{"nonce": "n"}, {"at_hash": "h"}, {"typ": "ID"}, {"typ": "Refresh"}])
async def test_threat_6_id_and_refresh_tokens_are_rejected_regardless_of_their_header(more: Json) -> None:
    claims: Json = {"sub": "alice", "exp": 2_000_000_000, **more}
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(InvalidToken):
            _external(http).caller(claims, "/mcp")


def test_test_key_signs() -> None:
    assert jwt.decode(jwt.encode({"alg": "ES256"}, {"a": 1}, KEY), KEY).claims == {"a": 1}


# ---- opaque tokens

INTROSPECTION = "https://idp.example/introspect"
ACTIVE: Json = {"active": True, "sub": "alice", "aud": f"{PUBLIC}/mcp", "exp": 2_000_000_000, "scope": "mcp:list"}


@pytest.mark.parametrize(
    "response",
    [
        {"active": False},
        {**ACTIVE, "active": "true"},
        {**ACTIVE, "aud": "https://other.example"},
        {**ACTIVE, "iss": "https://evil.example"},
        {**ACTIVE, "token_type": "refresh_token"},
        {key: value for key, value in ACTIVE.items() if key != "exp"},
        {key: value for key, value in ACTIVE.items() if key != "aud"},
    ],
)
async def test_rejected_opaque_token_is_not_introspected_again_at_once(idp: Any, response: Json) -> None:
    route = idp.post(INTROSPECTION).respond(json=response)
    async with httpx.AsyncClient(verify=False) as http:
        introspect = TokenIntrospection(http, INTROSPECTION, ("us", "secret"), _external(http))
        for _ in range(3):
            assert await introspect("opaque") is None
    assert route.call_count == 1


async def test_concurrent_introspections_of_one_token_share_a_query(idp: Any) -> None:
    route = idp.post(INTROSPECTION).respond(json=ACTIVE)
    async with httpx.AsyncClient(verify=False) as http:
        introspect = TokenIntrospection(http, INTROSPECTION, ("us", "secret"), _external(http))
        callers = await asyncio.gather(*(introspect("opaque") for _ in range(20)))
    assert {caller.subject for caller in callers if caller} == {"alice"}
    assert route.call_count == 1
    assert route.calls[0].request.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("fault", [httpx.ConnectError, 500, "not json"])
async def test_introspection_fails_as_unavailable_if_the_provider_does_not_answer(idp: Any, fault: Any) -> None:
    route = idp.post(INTROSPECTION)
    if isinstance(fault, int):
        route.respond(fault)
    elif isinstance(fault, str):
        route.respond(text=fault)
    else:
        route.mock(side_effect=fault)
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault) as caught:
            await TokenIntrospection(http, INTROSPECTION, ("us", "secret"), _external(http))("opaque")
    assert caught.value.kind is Kind.UNAVAILABLE
