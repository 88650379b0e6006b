"""OAuth as a client: authorization server metadata, and requests to token and revocation endpoints.

Used by the credentials of backends and by the accounts of users. All requests go through the guarded client.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast
from urllib.parse import quote_plus, urlsplit, urlunsplit

import httpx
import msgspec

from gateway.contract import Json
from gateway.errors import Fault, Kind

Method = Literal["none", "basic", "post"]
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_decode: Final = msgspec.json.Decoder().decode
_ERRORS: Final = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_dpop_proof",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
        "use_dpop_nonce",
    }
)
"""Only error codes of this closed list are shown: anything else may contain a secret."""

Proof = Callable[[str, str, str | None, str | None], str]
"""Signs a DPoP proof for a method, a URL, an access token and a nonce."""


class TokenRefused(Fault):
    """The token endpoint answered with an error. `error` is its code, if it is a known one."""

    def __init__(self, status: int, error: str) -> None:
        detail = f" ({error})" if error else ""
        super().__init__(Kind.UNAVAILABLE, f"The token endpoint responded with HTTP {status}{detail}.")
        self.error = error

    @property
    def is_final(self) -> bool:
        """Whether the grant is refused for good, rather than by a failure of the server."""
        return self.error not in ("", "use_dpop_nonce")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetadata:
    """The metadata of an authorization server that the gateway uses."""

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    methods: tuple[str, ...] = ("client_secret_basic",)
    scopes: tuple[str, ...] = ()
    challenge_methods: tuple[str, ...] | None = None
    has_issuer_parameter: bool = False
    has_client_documents: bool = False
    dpop_algorithms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuthentication:
    """How the gateway authenticates at a token endpoint. `repr` shows no secret."""

    client_id: str
    secret: Callable[[], str] | None = field(default=None, repr=False)
    assertion: Callable[[str], str] | None = field(default=None, repr=False)
    """Creates a client assertion (RFC 7523) for an audience."""
    method: Method = "basic"


@dataclass(frozen=True, slots=True)
class Token:
    """The response of a token endpoint. `repr` shows no token."""

    access: str = field(repr=False)
    is_dpop: bool
    lifetime: float | None
    refresh: str | None = field(repr=False)
    scopes: tuple[str, ...] | None
    """None if the response does not say, so that the requested scopes are granted."""
    issued_type: str = ""


def metadata_urls(issuer: str) -> Iterator[str]:
    """The metadata URLs of RFC 8414 and OpenID Connect, in the order of the MCP specification."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/oauth-authorization-server{path}", "", ""))
    yield urlunsplit((parts.scheme, parts.netloc, f"/.well-known/openid-configuration{path}", "", ""))
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, f"{path}/.well-known/openid-configuration", "", ""))


async def fetch_metadata(http: httpx.AsyncClient, issuer: str) -> ServerMetadata:
    """Fetch the metadata of an issuer. Raises `Fault(UNAVAILABLE)` if there are none or they name another issuer."""
    for url in metadata_urls(issuer):
        response = await http.get(url, headers={"accept": "application/json"})
        found = read_object(response)
        endpoint = found.get("token_endpoint")
        if response.status_code != 200 or not isinstance(endpoint, str):
            continue
        # RFC 8414 section 3.3: a document of another issuer could redirect codes and secrets to it.
        if str(found.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
            raise Fault(Kind.UNAVAILABLE, "The metadata name another issuer.")
        challenges = found.get("code_challenge_methods_supported")
        return ServerMetadata(
            issuer=str(found["issuer"]),
            token_endpoint=endpoint,
            authorization_endpoint=_text(found, "authorization_endpoint"),
            registration_endpoint=_text(found, "registration_endpoint"),
            revocation_endpoint=_text(found, "revocation_endpoint"),
            methods=_texts(found, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
            scopes=_texts(found, "scopes_supported"),
            challenge_methods=None if challenges is None else _texts(found, "code_challenge_methods_supported"),
            has_issuer_parameter=found.get("authorization_response_iss_parameter_supported") is True,
            has_client_documents=found.get("client_id_metadata_document_supported") is True,
            dpop_algorithms=_texts(found, "dpop_signing_alg_values_supported"),
        )
    raise Fault(Kind.UNAVAILABLE, "The issuer's metadata name no token endpoint.")


async def request_token(
    http: httpx.AsyncClient,
    url: str,
    form: Mapping[str, str],
    client: ClientAuthentication | None,
    *,
    audience: str,
    proof: Proof | None = None,
) -> Token:
    """Send a token request. `audience` is that of a client assertion: the issuer, or the endpoint itself.

    With `proof`, the token is bound to the proof's key (RFC 9449). Raises `TokenRefused` for an error response and
    `Fault(UNAVAILABLE)` when no usable token comes back.
    """
    nonce: str | None = None
    while True:
        headers = {"accept": "application/json"}
        if proof is not None:
            headers["dpop"] = proof("POST", url, None, nonce)
        response = await send_form(http, url, form, client, audience=audience, headers=headers)
        payload = read_object(response)
        if response.status_code == 200:
            return _parse_token(payload, is_dpop_expected=proof is not None)
        error = payload.get("error")
        if error != "use_dpop_nonce" or proof is None or nonce is not None:
            raise TokenRefused(response.status_code, error if isinstance(error, str) and error in _ERRORS else "")
        nonce = response.headers.get("dpop-nonce", "")


async def send_form(
    http: httpx.AsyncClient,
    url: str,
    form: Mapping[str, str],
    client: ClientAuthentication | None,
    *,
    audience: str,
    headers: Mapping[str, str],
) -> httpx.Response:
    """Post a form with the client's authentication."""
    fields, basic = dict(form), None
    if client is not None:
        if client.assertion is not None:
            fields |= {"client_id": client.client_id, "client_assertion_type": ASSERTION_TYPE}
            fields["client_assertion"] = client.assertion(audience)
        elif client.secret is not None and client.method == "basic":
            basic = (quote_plus(client.client_id), quote_plus(client.secret()))  # RFC 6749 §2.3.1
        elif client.secret is not None:
            fields |= {"client_id": client.client_id, "client_secret": client.secret()}
        else:
            fields["client_id"] = client.client_id
    return await http.post(url, data=fields, auth=basic or httpx.USE_CLIENT_DEFAULT, headers=dict(headers))


def secret_method(methods: tuple[str, ...]) -> Method:
    """How to send a client secret, according to the metadata."""
    return "post" if "client_secret_post" in methods and "client_secret_basic" not in methods else "basic"


def read_object(response: httpx.Response) -> Json:
    """The JSON object of a response; empty if it is none."""
    try:
        payload: Any = _decode(response.content)
    except msgspec.DecodeError:
        return {}
    return cast("Json", payload) if isinstance(payload, dict) else {}


def _parse_token(payload: Json, *, is_dpop_expected: bool) -> Token:
    access, kind = payload.get("access_token"), str(payload.get("token_type", "bearer")).lower()
    is_dpop = kind == "dpop" and is_dpop_expected
    if not isinstance(access, str) or not is_sendable(access) or not (is_dpop or kind in ("bearer", "n_a")):
        raise Fault(Kind.UNAVAILABLE, "The token endpoint returned no bearer token.")
    lifetime, refresh, scope = payload.get("expires_in"), payload.get("refresh_token"), payload.get("scope")
    return Token(
        access,
        is_dpop,
        float(lifetime) if isinstance(lifetime, int | float) and lifetime > 0 else None,
        refresh if isinstance(refresh, str) and refresh else None,
        tuple(scope.split()) if isinstance(scope, str) else None,
        str(payload.get("issued_token_type", "")),
    )


def is_sendable(token: str) -> bool:
    """Whether the token is a valid header value: a line break would inject a header."""
    return token.isascii() and token.isprintable() and " " not in token and bool(token)


def _text(values: Json, name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _texts(values: Json, name: str) -> tuple[str, ...]:
    value = values.get(name)
    if not isinstance(value, list):
        return ()
    return tuple(each for each in cast("list[Any]", value) if isinstance(each, str))
