"""Token exchange, identity assertions and proofs of possession, with a real token endpoint on a socket."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.accounts.grants import ID_JAG, ID_TOKEN, AssertionGrant, ExchangedTokens, TokenExchange
from gateway.auth.dpop import DpopKey
from gateway.errors import Fault, Kind
from gateway.outbound import create_client
from gateway.outbound.oauth import ClientAuthentication, TokenRefused, request_token
from tests.in_process_server import InProcessServer


class TokenEndpoint:
    """Records the forms it receives and answers with `answers` in turn."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: list[tuple[int, dict[str, Any], dict[str, str]]] = []
        self.base = ""

    async def metadata(self, request: Request) -> Response:
        return JSONResponse({"issuer": self.base, "token_endpoint": f"{self.base}/token"})

    async def token(self, request: Request) -> Response:
        self.forms.append({key: str(value) for key, value in (await request.form()).items()})
        self.headers.append(dict(request.headers))
        status, body, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return JSONResponse(body, status, headers=headers)

    def answer(self, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> None:
        self.answers.append((status, body, headers or {}))


@pytest.fixture
async def endpoint() -> AsyncIterator[TokenEndpoint]:
    found = TokenEndpoint()
    app = Starlette(
        routes=[
            Route("/.well-known/oauth-authorization-server", found.metadata),
            Route("/token", found.token, methods=["POST"]),
        ]
    )
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    async with InProcessServer(config).running(force=True) as port:
        found.base = f"http://127.0.0.1:{port}"
        yield found


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with create_client(allow_private=True) as client:
        yield client


async def _subject(owner: str) -> str | None:
    return None if owner.endswith("key") else f"token of {owner}"


async def test_callers_token_is_exchanged_once_and_cached_for_that_caller(
    endpoint: TokenEndpoint, http: httpx.AsyncClient
) -> None:
    endpoint.answer(access_token="new", token_type="Bearer", expires_in=60)
    client = ClientAuthentication(client_id="gw", secret=lambda: "s", method="basic")
    exchange = TokenExchange(
        client=client, token_url=f"{endpoint.base}/token", audience="far", actor=lambda: "gateway-token"
    )
    now = [0.0]
    tokens = ExchangedTokens("far", http, _subject, exchange, clock=lambda: now[0])
    for _ in range(3):
        credential = tokens.cached("a/user:alice") or await tokens.obtain("a/user:alice")
        assert credential.lines == b"authorization: Bearer new\r\n"
    (form,) = endpoint.forms
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert form["subject_token"] == "token of a/user:alice"
    assert (form["audience"], form["actor_token"]) == ("far", "gateway-token")
    assert endpoint.headers[0]["authorization"] == "Basic " + base64.b64encode(b"gw:s").decode()
    await tokens.obtain("a/user:bob")
    assert endpoint.forms[1]["subject_token"] == "token of a/user:bob"
    now[0] = 55.0  # a tenth of the lifetime before it expires
    assert tokens.cached("a/user:alice") is None


async def test_caller_without_a_token_gets_an_error_that_says_what_to_do(
    endpoint: TokenEndpoint, http: httpx.AsyncClient
) -> None:
    tokens = ExchangedTokens("far", http, _subject, TokenExchange(client=None, token_url=f"{endpoint.base}/token"))
    with pytest.raises(Fault, match="token of your identity provider") as caught:
        await tokens.obtain("a/user:key")
    assert caught.value.kind is Kind.DENIED
    assert endpoint.forms == []


async def test_identity_assertion_is_redeemed_at_the_servers_own_authorization_server(
    endpoint: TokenEndpoint, http: httpx.AsyncClient
) -> None:
    endpoint.answer(access_token="assertion", token_type="N_A", issued_token_type=ID_JAG)
    endpoint.answer(access_token="final", token_type="Bearer", expires_in=60)
    exchange = TokenExchange(
        client=ClientAuthentication(client_id="idp", method="none"),
        issuer=endpoint.base,
        subject_type=ID_TOKEN,
        requested_type=ID_JAG,
        audience="https://as.example",
    )
    grant = AssertionGrant(
        client=ClientAuthentication(client_id="gw", secret=lambda: "s"),
        issuer=endpoint.base,
        resource="https://far/mcp",
    )
    tokens = ExchangedTokens("far", http, _subject, exchange, grant)
    assert (await tokens.obtain("a/user:alice")).value == "final"
    first, second = endpoint.forms
    assert (first["requested_token_type"], first["client_id"]) == (ID_JAG, "idp")
    assert second["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert (second["assertion"], second["resource"]) == ("assertion", "https://far/mcp")


async def test_other_token_instead_of_an_assertion_is_refused(endpoint: TokenEndpoint, http: httpx.AsyncClient) -> None:
    endpoint.answer(access_token="access", token_type="Bearer", expires_in=60)
    grant = AssertionGrant(client=ClientAuthentication(client_id="gw"), issuer=endpoint.base, resource="r")
    tokens = ExchangedTokens("far", http, _subject, TokenExchange(client=None, issuer=endpoint.base), grant)
    with pytest.raises(Fault, match="no identity assertion"):
        await tokens.obtain("a/user:alice")


async def test_refusal_shows_its_code_and_no_description(endpoint: TokenEndpoint, http: httpx.AsyncClient) -> None:
    endpoint.answer(400, error="invalid_target", error_description="canary secret")
    tokens = ExchangedTokens("far", http, _subject, TokenExchange(client=None, issuer=endpoint.base))
    with pytest.raises(Fault) as caught:
        await tokens.obtain("a/user:alice")
    assert "invalid_target" in caught.value.message
    assert "canary" not in caught.value.message


async def test_nonce_of_the_token_endpoint_is_used_in_a_second_proof(
    endpoint: TokenEndpoint, http: httpx.AsyncClient
) -> None:
    key = DpopKey.generate()
    endpoint.answer(400, {"dpop-nonce": "n-1"}, error="use_dpop_nonce")
    endpoint.answer(access_token="bound", token_type="DPoP", expires_in=60)
    url = f"{endpoint.base}/token"
    token = await request_token(http, url, {"grant_type": "x"}, None, audience=url, proof=key.sign)
    assert token.is_dpop
    claims = [_claims(headers["dpop"]) for headers in endpoint.headers]
    assert [each.get("nonce") for each in claims] == [None, "n-1"]
    assert claims[0]["jti"] != claims[1]["jti"]
    assert claims[0]["htu"] == url


async def test_endless_nonce_challenge_ends_with_an_error(endpoint: TokenEndpoint, http: httpx.AsyncClient) -> None:
    endpoint.answer(400, {"dpop-nonce": "n"}, error="use_dpop_nonce")
    with pytest.raises(TokenRefused):
        await request_token(http, f"{endpoint.base}/token", {}, None, audience="x", proof=DpopKey.generate().sign)
    assert len(endpoint.forms) == 2


def test_proof_is_bound_to_request_and_token_and_the_key_survives_its_export() -> None:
    key = DpopKey.load(DpopKey.generate().export())
    claims = _claims(key.sign("POST", "https://far.example/mcp?x=1#y", "tok", None))
    assert (claims["htm"], claims["htu"]) == ("POST", "https://far.example/mcp")
    assert claims["ath"] == base64.urlsafe_b64encode(hashlib.sha256(b"tok").digest()).rstrip(b"=").decode()


def _claims(proof: str) -> dict[str, Any]:
    """The claims of a proof, after its signature was verified with the key in its header."""
    head = proof.split(".")[0]
    header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    assert "d" not in header["jwk"]
    return dict(jwt.decode(proof, ECKey.import_key(header["jwk"]), algorithms=["ES256"]).claims)
