"""Client assertions that the gateway signs for other authorization servers, and the accepted key types."""

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
def test_assertion_names_client_and_audience_and_has_a_unique_id(key: ECKey | RSAKey, algorithm: str) -> None:
    client_key = ClientKey("gate house", _pem(key), clock=lambda: 1000.7)
    first, second = (jwt.decode(client_key.sign_assertion("https://login.example"), key, [algorithm]) for _ in range(2))
    jti = first.claims.pop("jti")
    assert first.claims == {
        "iss": "gate house",
        "sub": "gate house",
        "aud": "https://login.example",
        "iat": 1000,
        "exp": 1000 + LIFE_SECONDS,
    }
    assert jti != second.claims["jti"]


def test_kid_of_a_jwk_is_sent_in_the_header() -> None:
    client_key = ClientKey("a", json.dumps(EC.as_dict(private=True, kid="2026")))
    assert jwt.decode(client_key.sign_assertion("b"), EC, ["ES256"]).header["kid"] == "2026"


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
    ids=["empty", "truncated", "list", "text", "public", "other curve", "symmetric"],
)
def test_unsupported_key_is_rejected_and_not_shown_in_the_error(key: str) -> None:
    with pytest.raises(ValueError, match=r"^not a private key of RSA or of the curve P-256, as PEM or JWK$"):
        ClientKey("a", key)
