"""Which access tokens are accepted: the attack matrix, expiry, revocation and key rotation."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, RSAKey

from gateway.auth.signing_keys import SigningKeys
from gateway.auth.tokens import AccessTokens, ProtectedResources
from gateway.errors import Fault, Kind
from gateway.state.database import Database
from tests.gateway.auth.token_issuer import PUBLIC, SECRET, IssuerFixture

Json = dict[str, Any]


def b64(raw: bytes | Json) -> str:
    plain = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
    return base64.urlsafe_b64encode(plain).rstrip(b"=").decode()


def parts(token: str) -> tuple[Json, Json, str]:
    header, claims, signature = token.split(".")
    return (*(json.loads(base64.urlsafe_b64decode(each + "==")) for each in (header, claims)), signature)


class Forge:
    """Builds invalid tokens, signed with the gateway's key where only the claims are wrong."""

    def __init__(self, issuer: IssuerFixture) -> None:
        self.valid = issuer.mint()
        self.header, self.claims, self.signature = parts(self.valid)
        self.key = next(iter(issuer.signing._keys.values()))
        self.other = ECKey.generate_key("P-256", private=True)

    def signed(self, header: Json | None = None, claims: Json | None = None, key: Any = None) -> str:
        merged = {name: value for name, value in {**self.header, **(header or {})}.items() if value is not None}
        payload = {name: value for name, value in {**self.claims, **(claims or {})}.items() if value is not None}
        text = f"{b64(merged)}.{b64(payload)}"
        return f"{text}.{b64(_signature(text.encode(), (key or self.key).private_key))}"

    def hmac(self, secret: bytes) -> str:
        signed = f"{b64({**self.header, 'alg': 'HS256'})}.{b64(self.claims)}"
        return f"{signed}.{b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"

    def unsigned(self, header: Json, signature: str = "") -> str:
        return f"{b64({**self.header, **header})}.{b64(self.claims)}.{signature}"

    @property
    def pem(self) -> bytes:
        return self.key.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _signature(text: bytes, key: Any) -> bytes:
    """Sign without the library's header checks, which an attacker skips."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


BAD: dict[str, Callable[[Forge], str]] = {
    "alg none": lambda forge: forge.unsigned({"alg": "none"}),
    "alg none in mixed case": lambda forge: forge.unsigned({"alg": "NoNe"}),
    "alg none with our signature": lambda forge: forge.unsigned({"alg": "none"}, forge.signature),
    "no alg": lambda forge: forge.unsigned({"alg": None}, forge.signature),
    "HS256 with the public PEM": lambda forge: forge.hmac(forge.pem),
    "HS256 with the public JWK": lambda forge: forge.hmac(json.dumps(forge.key.as_dict(private=False)).encode()),
    "HS256 with an empty key": lambda forge: forge.hmac(b""),
    "an embedded key": lambda forge: forge.signed({"jwk": forge.other.as_dict(private=False)}, key=forge.other),
    "a key at jku": lambda forge: forge.signed({"jku": "http://127.0.0.1:9/jwks", "kid": "x"}, key=forge.other),
    "a key at x5u": lambda forge: forge.signed({"x5u": "http://127.0.0.1:9/x", "kid": "x"}, key=forge.other),
    "another key with our kid": lambda forge: forge.signed(key=forge.other),
    "an unknown kid": lambda forge: forge.signed({"kid": "unknown"}),
    "a kid that is a path": lambda forge: forge.signed({"kid": "../../../../dev/null"}),
    "a kid that is SQL": lambda forge: forge.signed({"kid": "x' OR '1'='1"}),
    "a kid that is not a string": lambda forge: forge.signed({"kid": 7}),
    "no kid": lambda forge: forge.signed({"kid": None}),
    "crit": lambda forge: forge.signed({"crit": ["exp"], "exp": 1}),
    "RS256 with another key": lambda forge: forge.signed({"alg": "RS256"}, key=RSAKey.generate_key(2048)),
    "an ID token": lambda forge: forge.signed({"typ": "JWT"}),
    "an ID-JAG": lambda forge: forge.signed({"typ": "oauth-id-jag+jwt"}),
    "no typ": lambda forge: forge.signed({"typ": None}),
    "another issuer": lambda forge: forge.signed(claims={"iss": "https://evil.example"}),
    "our issuer with a slash": lambda forge: forge.signed(claims={"iss": f"{PUBLIC}/"}),
    "our issuer in another case": lambda forge: forge.signed(claims={"iss": "https://GW.example"}),
    "no issuer": lambda forge: forge.signed(claims={"iss": None}),
    "another audience": lambda forge: forge.signed(claims={"aud": "https://other.example/mcp"}),
    "an audience with our prefix": lambda forge: forge.signed(claims={"aud": f"{PUBLIC}/mcpx"}),
    "the issuer as audience": lambda forge: forge.signed(claims={"aud": PUBLIC}),
    "no audience": lambda forge: forge.signed(claims={"aud": None}),
    "an empty list of audiences": lambda forge: forge.signed(claims={"aud": []}),
    "audiences without ours": lambda forge: forge.signed(claims={"aud": ["https://a.example", "https://b.example"]}),
    "no expiry": lambda forge: forge.signed(claims={"exp": None}),
    "an expiry that is a string": lambda forge: forge.signed(claims={"exp": "9999999999"}),
    "an expiry that is true": lambda forge: forge.signed(claims={"exp": True}),
    "not valid yet": lambda forge: forge.signed(claims={"nbf": forge.claims["iat"] + 31}),
    "issued in the future": lambda forge: forge.signed(claims={"iat": forge.claims["iat"] + 31}),
    "no subject": lambda forge: forge.signed(claims={"sub": None}),
    "truncated": lambda forge: forge.valid[:-4],
    "an extra dot": lambda forge: f"{forge.valid}.x",
    "a byte of the claims changed": lambda forge: forge.valid.replace(forge.valid.split(".")[1][20], "A", 1)[:-1] + "_",
    "not a token": lambda forge: "hello",
    "too long": lambda forge: f"{forge.valid}{'A' * 20_000}",
}


def test_attack_matrix_has_at_least_33_tokens() -> None:
    assert len(BAD) >= 33


@pytest.mark.parametrize("name", BAD)
async def test_threat_5_and_6_forged_token_is_rejected(issuer: IssuerFixture, name: str) -> None:
    forge = Forge(issuer)
    assert await issuer.tokens.verify(forge.valid) is not None
    assert await issuer.tokens.verify(BAD[name](forge)) is None


async def test_threat_6_header_with_a_duplicate_member_is_rejected(issuer: IssuerFixture) -> None:
    forge = Forge(issuer)
    duplicate = b'{"alg":"ES256","typ":"at+jwt","kid":"a","kid":"b"}'
    assert await issuer.tokens.verify(f"{b64(duplicate)}.{b64(forge.claims)}.{forge.signature}") is None


async def test_valid_token_returns_its_caller_and_resource(issuer: IssuerFixture) -> None:
    caller = await issuer.tokens.verify(issuer.mint(resource=f"{PUBLIC}/mcp/core"))
    assert caller is not None
    assert (caller.principal, caller.groups, caller.client) == ("acme/user:alice", {"dev"}, "client-1")
    assert (caller.resource, caller.credential) == ("/mcp/core", "family-1")
    assert caller.scopes == {"mcp:list", "mcp:call", "mcp:call:write"}, "a wider scope implies the narrower one"
    assert caller.expires == issuer.clock.now + 600


async def test_threat_5_widest_own_audience_of_several_determines_the_resource(issuer: IssuerFixture) -> None:
    forge = Forge(issuer)
    several = ["https://other.example", f"{PUBLIC}/mcp/core", f"{PUBLIC}/mcp"]
    caller = await issuer.tokens.verify(forge.signed(claims={"aud": several}))
    assert caller is not None
    assert caller.resource == "/mcp"


@pytest.mark.parametrize(("after", "valid"), [(0, True), (599, True), (629, True), (631, False), (6000, False)])
async def test_threat_7_token_is_accepted_until_30_seconds_after_expiry(
    issuer: IssuerFixture, after: int, valid: bool
) -> None:
    token = issuer.mint()
    issuer.clock.now += after
    if valid:
        assert await issuer.tokens.verify(token) is not None
        return
    with pytest.raises(Fault) as caught:
        await issuer.tokens.verify(token)
    assert (caught.value.kind, caught.value.details["reason"]) == (Kind.UNAUTHENTICATED, "expired")


@pytest.mark.parametrize(("ahead", "valid"), [(29, True), (60, False)])
async def test_threat_7_issuer_clock_may_be_30_seconds_ahead(issuer: IssuerFixture, ahead: int, valid: bool) -> None:
    issuer.clock.now += ahead
    token = issuer.mint()
    issuer.clock.now -= ahead
    assert (await issuer.tokens.verify(token) is not None) is valid


# ---- revocation


@pytest.mark.parametrize(
    ("kind", "value"), [("family", "family-1"), ("user", "acme/user:alice"), ("client", "client-1")]
)
async def test_token_is_rejected_after_its_family_user_or_client_is_revoked(
    issuer: IssuerFixture, kind: Any, value: str
) -> None:
    token, other = issuer.mint(), issuer.mint(subject="bob", client="client-2", family="family-2")
    await issuer.revocations.add(kind, value, 600)
    assert await issuer.tokens.verify(token) is None
    assert await issuer.tokens.verify(other) is not None


async def test_revocation_by_token_id_covers_the_malleated_signature(issuer: IssuerFixture) -> None:
    # An ES256 signature (r, s) is as valid as (r, n - s): a revocation by digest of the token would miss it.
    n = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    token = issuer.mint()
    head, claims, signature = token.split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    twin = b64(raw[:32] + (n - int.from_bytes(raw[32:], "big")).to_bytes(32, "big"))
    twin_token = f"{head}.{claims}.{twin}"
    caller = await issuer.tokens.verify(twin_token)
    assert caller is not None
    await issuer.revocations.add("token", caller.token, 600)
    assert await issuer.tokens.verify(token) is None
    assert await issuer.tokens.verify(twin_token) is None


# ---- keys


async def test_rotation_signs_with_the_new_key_and_still_accepts_old_tokens(issuer: IssuerFixture) -> None:
    before = issuer.mint()
    kid = await issuer.signing.rotate()
    after = issuer.mint()
    assert parts(after)[0]["kid"] == kid != parts(before)[0]["kid"]
    assert await issuer.tokens.verify(before) is not None
    assert await issuer.tokens.verify(after) is not None
    assert len(issuer.signing.public_jwks()["keys"]) == 2


async def test_expired_retired_key_verifies_nothing(tmp_path: Path) -> None:
    database = await Database.open(tmp_path)
    try:
        now = [1000.0]
        signing = SigningKeys(database, SECRET, clock=lambda: now[0])
        await signing.rotate()
        old = signing._newest
        await signing.rotate()
        assert await signing.key(old) is not None
        now[0] += 3601
        assert await signing.key(old) is None, "without any write to the database"
        assert [key["kid"] for key in signing.public_jwks()["keys"]] == [signing._newest]
        await signing.rotate()
        assert await signing.key(old) is None
    finally:
        await database.close()


async def test_keys_are_shared_with_another_process(issuer: IssuerFixture, tmp_path: Path) -> None:
    database = await Database.open(tmp_path)
    try:
        signing = await SigningKeys.open(database, SECRET)
        kid = await signing.rotate()
        claims = parts(issuer.mint())[1]
        assert await issuer.tokens.verify(signing.sign(claims)) is not None
        assert kid in {key["kid"] for key in issuer.signing.public_jwks()["keys"]}
    finally:
        await database.close()


async def test_private_key_is_neither_published_nor_stored_in_plain_text(issuer: IssuerFixture, tmp_path: Path) -> None:
    (published,) = issuer.signing.public_jwks()["keys"]
    assert set(published) == {"kty", "crv", "x", "y", "kid", "use", "alg"}
    private = next(iter(issuer.signing._keys.values())).as_dict(private=True)["d"]
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert isinstance(private, str)
    assert private.encode() not in raw


async def test_keys_encrypted_with_another_secret_are_rejected(issuer: IssuerFixture) -> None:
    with pytest.raises(Fault, match="secrets/signing"):
        await SigningKeys.open(issuer.database, b"t" * 32)


# ---- resources


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/core", "/mcp/core"),
        ("/mcp/", None),
        ("/mcp/a/b", None),
        ("/mcpx", None),
        ("", None),
        ("/", None),
        ("/other", None),
    ],
)
def test_only_the_exact_url_of_an_endpoint_is_a_resource(url: str, endpoint: str | None) -> None:
    assert ProtectedResources(PUBLIC).endpoint(PUBLIC + url) == endpoint


async def test_no_token_is_accepted_without_an_issuer(issuer: IssuerFixture) -> None:
    assert await AccessTokens({}, issuer.revocations).verify(issuer.mint()) is None
