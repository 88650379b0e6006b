"""The gateway's own key at another authorization server: what it signs, and which keys it takes."""

import json

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from gateway.auth.client_key import LIFE_SECONDS, ClientKey

EC = ECKey.generate_key("P-256")
RSA = RSAKey.generate_key(2048)


def _pem(key: ECKey | RSAKey, *, private: bool = True) -> str:
    return key.as_pem(private=private).decode()


@pytest.mark.parametrize(("key", "algorithm"), [(EC, "ES256"), (RSA, "RS256")], ids=["EC", "RSA"])
def test_an_assertion_says_who_asks_whom_for_a_minute_and_never_the_same_twice(
    key: ECKey | RSAKey, algorithm: str
) -> None:
    mine = ClientKey("gate house", _pem(key), clock=lambda: 1000.7)
    first, second = (jwt.decode(mine.assertion("https://login.example"), key, [algorithm]) for _ in range(2))
    jti = first.claims.pop("jti")
    assert first.claims == {
        "iss": "gate house",
        "sub": "gate house",
        "aud": "https://login.example",
        "iat": 1000,
        "exp": 1000 + LIFE_SECONDS,
    }
    assert jti != second.claims["jti"]


def test_a_jwk_names_itself() -> None:
    mine = ClientKey("a", json.dumps(EC.as_dict(private=True, kid="2026")))
    assert jwt.decode(mine.assertion("b"), EC, ["ES256"]).header["kid"] == "2026"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "{",
        "[]",
        "s3cret",
        _pem(EC, private=False),
        _pem(ECKey.generate_key("P-384")),
        json.dumps(OctKey.generate_key(256).as_dict(private=True)),
    ],
    ids=["nothing", "half", "a list", "words", "public", "another curve", "a secret"],
)
def test_any_other_key_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValueError, match=r"^not a private key of RSA or of the curve P-256, as PEM or JWK$"):
        ClientKey("a", key)
