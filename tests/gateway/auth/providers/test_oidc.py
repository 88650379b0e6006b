"""Verification of what an OpenID Connect provider sends."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from gateway.auth.providers.identity import ProviderConfig, SignInRefused
from gateway.auth.providers.oidc import OidcProvider
from gateway.errors import Fault
from gateway.outbound import create_client
from tests.gateway.auth.providers.test_identity import CONFIG

Json = dict[str, Any]
ISSUER = "https://idp.example"
KEY = ECKey.generate_key("P-256", {"kid": "k1"})
OTHER_KEY = ECKey.generate_key("P-256", {"kid": "k1"})
REFUSED: Any = object()
LOGOUT = {"http://schemas.openid.net/event/backchannel-logout": {}}


def id_token(key: Any = KEY, header: Json | None = None, **changes: Any) -> str:
    now = int(time.time())
    claims: Json = {
        "iss": ISSUER, "sub": "u1", "aud": "c", "exp": now + 60, "iat": now, "nonce": "n0nce", "groups": ["dev"],
        **changes,
    }  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not REFUSED}
    sent = {"alg": "ES256", "kid": "k1", **(header or {})}
    return jwt.encode(sent, claims, key, algorithms=[sent["alg"]])


@pytest.fixture
async def provider() -> AsyncIterator[OidcProvider]:
    async with create_client() as http:
        yield OidcProvider(CONFIG, http, "https://gw.example/oauth/callback/p")


@pytest.fixture
def idp() -> Any:
    with respx.mock(assert_all_called=False) as mock:
        document = {
            "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/authorize", "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/jwks", "userinfo_endpoint": f"{ISSUER}/userinfo",
        }  # fmt: skip
        mock.get(f"{ISSUER}/.well-known/openid-configuration").respond(json=document)
        mock.get(f"{ISSUER}/jwks").respond(json={"keys": [KEY.as_dict(private=False)]})
        yield mock


def answer_with(idp: Any, token: str | None, **more: Any) -> None:
    body = {"access_token": "at", **({} if token is None else {"id_token": token}), **more}
    idp.post(f"{ISSUER}/token").respond(json=body)


async def test_valid_id_token_identifies_the_user_by_issuer_and_subject(provider: OidcProvider, idp: Any) -> None:
    answer_with(idp, id_token(email="a@b.example", email_verified="true", sid="s1"), refresh_token="rt")
    found = await provider.exchange("code", verifier="v", nonce="n0nce")
    assert (found.issuer, found.subject, found.groups, found.sid) == (ISSUER, "u1", {"dev"}, "s1")
    assert found.email == ""  # a text is not a boolean
    assert found.credential == {"refresh_token": "rt"}
    assert "rt" not in repr(found)


@pytest.mark.parametrize(
    "token",
    [
        id_token(nonce="other"),
        id_token(nonce=REFUSED),
        id_token(iss=f"{ISSUER}/"),
        id_token(iss="https://evil.example"),
        id_token(aud="another-client"),
        id_token(aud=["c", "another-client"]),
        id_token(aud=["c", "another-client"], azp="another-client"),
        id_token(exp=int(time.time()) - 120),
        id_token(exp=REFUSED),
        id_token(iat=int(time.time()) + 600),
        id_token(sub=""),
        id_token(sub=REFUSED),
        id_token(key=OTHER_KEY),
        id_token(header={"typ": "at+jwt"}),
        id_token(header={"typ": "logout+jwt"}),
        id_token(key=OctKey.import_key(b"k" * 32), header={"alg": "HS256"}),
        "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lkcC5leGFtcGxlIiwic3ViIjoidTEifQ.",
        "not a token",
    ],
)
async def test_threat_50_invalid_id_token_is_refused(provider: OidcProvider, idp: Any, token: str) -> None:
    answer_with(idp, token)
    with pytest.raises(SignInRefused):
        await provider.exchange("code", verifier="v", nonce="n0nce")


async def test_threat_50_user_info_of_another_subject_is_refused(provider: OidcProvider, idp: Any) -> None:
    answer_with(idp, id_token(groups=REFUSED))
    idp.get(f"{ISSUER}/userinfo").respond(json={"sub": "u2", "groups": ["ops"]})
    with pytest.raises(SignInRefused):
        await provider.exchange("code", verifier="v", nonce="n0nce")


async def test_recheck_of_another_subject_is_refused(provider: OidcProvider, idp: Any) -> None:
    answer_with(idp, id_token(sub="u2", nonce=REFUSED))
    with pytest.raises(SignInRefused):
        await provider.recheck(ISSUER, "u1", {"refresh_token": "rt"})
    answer_with(idp, id_token(nonce=REFUSED))
    assert (await provider.recheck(ISSUER, "u1", {"refresh_token": "rt"})).credential == {"refresh_token": "rt"}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": "invalid_grant"}, SignInRefused),
        (400, {"error": "invalid_client"}, Fault),
        (401, {"error": "invalid_client"}, Fault),
        (503, {}, Fault),
        (200, {"token": "x"}, Fault),
    ],
)
async def test_only_an_answer_about_the_user_refuses_the_user(
    provider: OidcProvider, idp: Any, status: int, body: Json, expected: type[Exception]
) -> None:
    """An error of the gateway's own registration, or an outage, is tolerated for the grace period."""
    idp.post(f"{ISSUER}/token").respond(status, json=body)
    with pytest.raises(expected):
        await provider.recheck(ISSUER, "u1", {"refresh_token": "rt"})


async def test_discovery_document_of_another_issuer_is_not_used(provider: OidcProvider, idp: Any) -> None:
    document = {"issuer": "https://evil.example", "authorization_endpoint": "https://evil.example/authorize"}
    idp.get(f"{ISSUER}/.well-known/openid-configuration").respond(json=document)
    with pytest.raises(Fault, match="unreachable"):
        await provider.authorization_url(state="s", nonce="n", challenge="c", prompt="")


async def test_authorization_endpoint_with_another_scheme_is_not_used(provider: OidcProvider, idp: Any) -> None:
    document = {"issuer": ISSUER, "authorization_endpoint": "javascript:alert(1)"}
    idp.get(f"{ISSUER}/.well-known/openid-configuration").respond(json=document)
    with pytest.raises(Fault, match="authorization_endpoint"):
        await provider.authorization_url(state="s", nonce="n", challenge="c", prompt="")


async def test_authorization_request_has_pkce_state_nonce_and_the_exact_redirect(
    provider: OidcProvider, idp: Any
) -> None:
    url = httpx.URL(await provider.authorization_url(state="s", nonce="n", challenge="ch", prompt=""))
    assert str(url).startswith(f"{ISSUER}/authorize?")
    sent = dict(url.params)
    assert (sent["state"], sent["nonce"], sent["code_challenge"], sent["code_challenge_method"]) == (
        "s", "n", "ch", "S256",
    )  # fmt: skip
    assert sent["redirect_uri"] == "https://gw.example/oauth/callback/p"
    assert "resource" not in sent


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({}, True),
        ({"sub": REFUSED, "sid": "s1"}, True),
        ({"sub": REFUSED}, False),
        ({"events": REFUSED}, False),
        ({"events": {"other": {}}}, False),
        ({"nonce": "n0nce"}, False),
        ({"aud": "another-client"}, False),
        ({"iss": "https://evil.example"}, False),
        ({"iat": int(time.time()) - 3600}, False),
        ({"exp": int(time.time()) - 120}, False),
        ({"jti": REFUSED}, False),
    ],
)
async def test_logout_token_is_verified(provider: OidcProvider, idp: Any, changes: Json, valid: bool) -> None:
    given = {"nonce": REFUSED, "groups": REFUSED, "jti": "j1", "events": LOGOUT, **changes}
    token = id_token(header={"typ": "logout+jwt"}, **given)
    if valid:
        assert (await provider.verify_logout(token)).issuer == ISSUER
    else:
        with pytest.raises(SignInRefused):
            await provider.verify_logout(token)


async def test_threat_50_id_token_is_not_a_logout_token(provider: OidcProvider, idp: Any) -> None:
    with pytest.raises(SignInRefused):
        await provider.verify_logout(id_token())


async def test_entra_issuer_of_several_directories_accepts_only_the_allowed_ones(idp: Any) -> None:
    base = "https://login.example"
    config: ProviderConfig = replace(
        CONFIG, preset="entra", issuer=f"{base}/organizations/v2.0", allowed_tenants=frozenset({"t1"})
    )
    document = {
        "issuer": f"{base}/{{tenantid}}/v2.0", "token_endpoint": f"{ISSUER}/token", "jwks_uri": f"{ISSUER}/jwks",
    }  # fmt: skip
    idp.get(f"{base}/organizations/v2.0/.well-known/openid-configuration").respond(json=document)
    async with create_client() as http:
        provider = OidcProvider(config, http, "https://gw.example/oauth/callback/p")
        answer_with(idp, id_token(iss=f"{base}/t1/v2.0", tid="t1"))
        assert (await provider.exchange("c", verifier="v", nonce="n0nce")).issuer == f"{base}/t1/v2.0"
        for issuer, tid in ((f"{base}/t2/v2.0", "t2"), (f"{base}/t1/v2.0", "t2"), (f"{base}/t2/v2.0", "t1")):
            answer_with(idp, id_token(iss=issuer, tid=tid))
            with pytest.raises(SignInRefused):
                await provider.exchange("c", verifier="v", nonce="n0nce")
