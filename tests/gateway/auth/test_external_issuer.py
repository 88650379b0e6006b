"""An identity provider that misbehaves or is away: keys, documents and questions. The far side is a stand-in here."""

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
from tests.gateway.auth.house import PUBLIC, Clock

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


async def test_keys_are_read_once_however_many_wait_for_them(idp: Any) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER)
        found = await asyncio.gather(*(keys.get("k1") for _ in range(20)))
    assert all(key is not None for key in found)
    assert idp.routes[1].call_count == 1


async def test_threat_6_an_unknown_kid_is_looked_for_twice_a_minute_at_most(idp: Any) -> None:
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


async def test_a_new_key_of_the_provider_is_found(idp: Any) -> None:
    clock = Clock(0)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER, clock=clock)
        await keys.get("k1")
        fresh = ECKey.generate_key("P-256", private=True, parameters={"kid": "k2"})
        idp.routes[1].respond(json=published(KEY, fresh))
        clock.now += 31
        assert await keys.get("k2") is not None


async def test_while_the_provider_is_away_its_last_keys_hold_for_a_day(idp: Any) -> None:
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


async def test_a_provider_that_was_never_reached_vouches_for_nobody(idp: Any) -> None:
    for route in idp.routes:
        route.respond(500)
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault) as caught:
            await IssuerKeys(http, ISSUER).get("k1")
    assert caught.value.kind is Kind.UNAVAILABLE


@pytest.mark.parametrize("named", ["https://evil.example", ISSUER + "/", ISSUER.upper(), None])
async def test_threat_6_a_document_of_another_issuer_is_not_believed(idp: Any, named: str | None) -> None:
    idp.routes[0].respond(json={"issuer": named, "jwks_uri": JWKS})
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault):
            await IssuerKeys(http, ISSUER).get("k1")
    assert idp.routes[1].call_count == 0


BAD_SETS: dict[str, Any] = {
    "none": {"keys": []},
    "ten thousand": {"keys": [{"kty": "EC", "kid": str(n)} for n in range(10_000)]},
    "no list": {"keys": {"k1": {}}},
    "not an object": [],
}


@pytest.mark.parametrize("name", BAD_SETS)
async def test_threat_6_a_set_of_keys_that_is_none_is_refused_whole(idp: Any, name: str) -> None:
    idp.routes[1].respond(json=BAD_SETS[name])
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault):
            await IssuerKeys(http, ISSUER).get("k1")


async def test_threat_6_weak_foreign_private_and_doubled_keys_are_left_out(idp: Any) -> None:
    weak = RSAKey.generate_key(1024, parameters={"kid": "weak"}, auto_kid=False)
    twin = ECKey.generate_key("P-256", private=True, parameters={"kid": "twin"})
    curve = ECKey.generate_key("P-384", private=True, parameters={"kid": "curve"})
    said = published(KEY, weak, twin, twin, curve)
    said["keys"] += [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        KEY.as_dict(private=True) | {"kid": "leaked"},
        KEY.as_dict(private=False) | {"kid": "enc", "use": "enc"},
        {"kty": "EC", "crv": "P-256", "x": "!", "y": "!", "kid": "broken"},
        "text",
    ]
    idp.routes[1].respond(json=said)
    async with httpx.AsyncClient(verify=False) as http:
        keys = IssuerKeys(http, ISSUER)
        assert await keys.get("k1") is not None
        for kid in ("weak", "twin", "curve", "secret", "leaked", "enc", "broken"):
            assert await keys.get(kid) is None, kid


# ---- claims


def test_claims_are_read_where_the_operator_says() -> None:
    claims = ClaimMapping(
        tenant_claim="org.id",
        tenants={"o-1": "acme"},
        groups_claim="realm_access.roles",
        scopes_claim="realm_access.roles",
        scope_map={"tools": ("mcp:list", "mcp:call"), "other": ()},
        subject_claim="preferred_username",
    )
    said: Json = {
        "org": {"id": "o-1"},
        "realm_access": {"roles": ["tools", "other", 7]},
        "preferred_username": "alice",
        "azp": "web",
        "exp": 2_000_000_000,
        "jti": "t1",
    }
    caller = claims.caller(said, "/mcp")
    assert (caller.principal, caller.client, caller.token) == ("acme/user:alice", "web", "t1")
    assert (caller.groups, caller.scopes) == ({"tools", "other"}, {"mcp:list", "mcp:call"})
    for wrong in ({"org": {"id": "o-2"}}, {"org": None}, {"preferred_username": ""}, {"preferred_username": 7}):
        with pytest.raises(InvalidToken):
            claims.caller({**said, **wrong}, "/mcp")


def _external(http: httpx.AsyncClient, **more: Any) -> ExternalIssuer:
    given: Json = {
        "algorithms": frozenset({"ES256"}),
        "types": frozenset({"at+jwt", "jwt"}),
        "audiences": frozenset({"api://gatehouse"}),
        **more,
    }
    return ExternalIssuer(
        ISSUER, IssuerKeys(http, ISSUER), ProtectedResources(PUBLIC), ClaimMapping(tenant="acme"), **given
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
async def test_an_alias_of_the_operator_stands_for_everything(audiences: set[str], endpoint: str | None) -> None:
    async with httpx.AsyncClient(verify=False) as http:
        assert _external(http).resource(frozenset(audiences)) == endpoint


@pytest.mark.parametrize("more", [{"nonce": "n"}, {"at_hash": "h"}, {"typ": "ID"}, {"typ": "Refresh"}])
async def test_threat_6_an_id_or_refresh_token_is_no_access_token_whatever_its_header_says(more: Json) -> None:
    said: Json = {"sub": "alice", "exp": 2_000_000_000, **more}
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(InvalidToken):
            _external(http).caller(said, "/mcp")


def test_the_tests_own_key_signs() -> None:
    assert jwt.decode(jwt.encode({"alg": "ES256"}, {"a": 1}, KEY), KEY).claims == {"a": 1}


# ---- opaque tokens

ASK = "https://idp.example/introspect"
GOOD: Json = {"active": True, "sub": "alice", "aud": f"{PUBLIC}/mcp", "exp": 2_000_000_000, "scope": "mcp:list"}


@pytest.mark.parametrize(
    "said",
    [
        {"active": False},
        {**GOOD, "active": "true"},
        {**GOOD, "aud": "https://other.example"},
        {**GOOD, "iss": "https://evil.example"},
        {**GOOD, "token_type": "refresh_token"},
        {key: value for key, value in GOOD.items() if key != "exp"},
        {key: value for key, value in GOOD.items() if key != "aud"},
    ],
)
async def test_an_opaque_token_that_is_not_for_us_is_nobodys_and_not_asked_about_again_at_once(
    idp: Any, said: Json
) -> None:
    asked = idp.post(ASK).respond(json=said)
    async with httpx.AsyncClient(verify=False) as http:
        ask = TokenIntrospection(http, ASK, ("us", "secret"), _external(http))
        for _ in range(3):
            assert await ask("opaque") is None
    assert asked.call_count == 1


async def test_a_good_opaque_token_is_asked_about_once_for_all_who_wait(idp: Any) -> None:
    asked = idp.post(ASK).respond(json=GOOD)
    async with httpx.AsyncClient(verify=False) as http:
        ask = TokenIntrospection(http, ASK, ("us", "secret"), _external(http))
        callers = await asyncio.gather(*(ask("opaque") for _ in range(20)))
    assert {caller.subject for caller in callers if caller} == {"alice"}
    assert asked.call_count == 1
    assert asked.calls[0].request.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("fault", [httpx.ConnectError, 500, "not json"])
async def test_whoever_cannot_be_asked_vouches_for_nobody(idp: Any, fault: Any) -> None:
    route = idp.post(ASK)
    if isinstance(fault, int):
        route.respond(fault)
    elif isinstance(fault, str):
        route.respond(text=fault)
    else:
        route.mock(side_effect=fault)
    async with httpx.AsyncClient(verify=False) as http:
        with pytest.raises(Fault) as caught:
            await TokenIntrospection(http, ASK, ("us", "secret"), _external(http))("opaque")
    assert caught.value.kind is Kind.UNAVAILABLE
