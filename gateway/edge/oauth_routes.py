"""Routes of the authorization server and of its discovery documents, rate limited by client address.

The responses come from `gateway.auth.server`; this module converts requests and errors.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from gateway.contract import Json
from gateway.edge.authentication import METADATA
from gateway.edge.client_address import address_group
from gateway.edge.ip_rate_limit import Gate, IpRateLimiter
from gateway.edge.not_found import not_found
from gateway.edge.request_parsing import fold_headers, read_body
from gateway.errors import TABLE, Fault, Kind

CACHED: Final = {"cache-control": "public, max-age=3600"}


def metadata_router(
    public_url: str, issuers: Sequence[str], scopes: Sequence[str], served: Callable[[str], bool]
) -> APIRouter:
    """Build the protected resource metadata (RFC 9728): at the root for `/mcp`, and by path for each endpoint."""
    router = APIRouter(tags=["discovery"])

    def document(endpoint: str) -> dict[str, Any]:
        return {
            "resource": public_url + endpoint,
            "authorization_servers": list(issuers),
            "scopes_supported": list(scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "Gatehouse",
        }

    @router.get(METADATA)
    async def root() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]  # the decorator registers it
        return JSONResponse(document("/mcp"), headers=CACHED)

    @router.get(METADATA + "/{endpoint:path}")
    async def by_path(endpoint: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not served(f"/{endpoint}"):
            # No document for paths that are not endpoints.
            return not_found()
        return JSONResponse(document(f"/{endpoint}"), headers=CACHED)

    return router


Pairs = Sequence[tuple[str, str]]
Bytes = tuple[int, list[tuple[str, str]], bytes]
_MAX_BODY: Final = 64 * 1024
_MAX_FIELDS: Final = 64


class OAuthServer(Protocol):
    """The authorization server. Every method returns status, headers and body."""

    async def token(self, headers: Mapping[str, str], form: Pairs, address: str) -> Any: ...

    async def revoke(self, headers: Mapping[str, str], form: Pairs, address: str) -> Any: ...

    async def register(self, body: bytes) -> Any: ...

    async def authorize_page(self, query: Pairs, cookies: Mapping[str, str], address: str) -> Any: ...

    async def submit_form(
        self, query: Pairs, form: Mapping[str, str], cookies: Mapping[str, str], address: str
    ) -> Any: ...

    async def provider_callback(
        self, provider: str, response: Pairs, cookies: Mapping[str, str], address: str
    ) -> Any: ...

    async def provider_logout(self, provider: str, form: Mapping[str, str]) -> Any: ...


@dataclass(frozen=True, slots=True)
class OAuthRates:
    """Rate limits per client address."""

    authorize: str
    token: str
    register: str


def oauth_router(
    server: OAuthServer,
    encoded: Callable[[Any], Bytes],
    documents: Callable[[], tuple[Json, Json]],
    jwks: Callable[[], Json],
    address: Callable[[Request], str],
    rate_limiter: IpRateLimiter,
    rates: OAuthRates,
    aliases: Sequence[str],
) -> APIRouter:
    """Build the routes under `/oauth`, the root aliases that older clients use, and discovery.

    `documents` returns the RFC 8414 and the OpenID document; they are also served below each of `aliases`.
    """
    router = APIRouter(tags=["authorization"])

    def client_group(request: Request) -> str:
        return address_group(address(request))

    async def show(request: Request) -> Response:
        return _response(encoded(await server.authorize_page(_query(request), request.cookies, client_group(request))))

    async def decide(request: Request) -> Response:
        form = dict(_pairs((await _body(request)).decode("utf-8", "replace")))
        query = _query(request)
        return _response(encoded(await server.submit_form(query, form, request.cookies, client_group(request))))

    async def token(request: Request) -> Response:
        form = _pairs((await _body(request)).decode("utf-8", "replace"))
        return _response(
            encoded(await server.token(fold_headers(request.scope["headers"]), form, client_group(request)))
        )

    async def revoke(request: Request) -> Response:
        form = _pairs((await _body(request)).decode("utf-8", "replace"))
        return _response(
            encoded(await server.revoke(fold_headers(request.scope["headers"]), form, client_group(request)))
        )

    async def register(request: Request) -> Response:
        return _response(encoded(await server.register(await _body(request))))

    async def provider_callback(request: Request) -> Response:
        provider, query = request.path_params["provider"], _query(request)
        answer = await server.provider_callback(provider, query, request.cookies, client_group(request))
        return _response(encoded(answer))

    async def provider_logout(request: Request) -> Response:
        form = dict(_pairs((await _body(request)).decode("utf-8", "replace")))
        return _response(encoded(await server.provider_logout(request.path_params["provider"], form)))

    routes: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]], str], ...] = (
        ("GET", "/authorize", show, rates.authorize),
        ("POST", "/authorize", decide, rates.authorize),
        ("POST", "/token", token, rates.token),
        ("POST", "/register", register, rates.register),
        ("POST", "/revoke", revoke, rates.token),
    )
    for method, path, endpoint, rate in routes:
        limited = _with_oauth_errors(rate_limiter.gate(f"{method} {path}", rate), endpoint)
        router.add_api_route(f"/oauth{path}", limited, methods=[method])
        if path != "/revoke":
            router.add_api_route(path, limited, methods=[method])

    for method, path, endpoint, rate in (
        ("GET", "/oauth/callback/{provider}", provider_callback, rates.authorize),
        ("POST", "/oauth/logout/{provider}", provider_logout, rates.token),
    ):
        gate = rate_limiter.gate(f"{method} {path}", rate)
        router.add_api_route(path, _with_oauth_errors(gate, endpoint), methods=[method])

    async def serve_jwks() -> JSONResponse:
        return JSONResponse(jwks(), headers=CACHED)

    router.add_api_route("/oauth/jwks", serve_jwks, methods=["GET"])
    for path in ("", *aliases):
        for index, name in enumerate(("oauth-authorization-server", "openid-configuration")):
            router.add_api_route(f"/.well-known/{name}{path}", _document(documents, index), methods=["GET"])
    return router


def _document(documents: Callable[[], tuple[Json, Json]], index: int) -> Callable[[], Awaitable[JSONResponse]]:
    async def read() -> JSONResponse:
        return JSONResponse(documents()[index], headers=CACHED)

    return read


def _with_oauth_errors(
    gate: Gate, endpoint: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Render faults as OAuth error responses."""

    async def answer(request: Request) -> Response:
        try:
            await gate(request)
            return await endpoint(request)
        except Fault as fault:
            more = {} if fault.retry_after is None else {"retry-after": str(max(1, round(fault.retry_after)))}
            status = int(fault.details.get("http_status", 0)) or TABLE[fault.kind].http
            error = "invalid_request" if status < 500 and fault.kind is not Kind.RATE_LIMITED else _BUSY
            return _oauth_error(status, error, fault.message, more)

    return answer


_BUSY: Final = "temporarily_unavailable"


def _oauth_error(status: int, error: str, description: str, headers: Mapping[str, str]) -> Response:
    body = {"error": error, "error_description": description}
    return JSONResponse(body, status, headers={"cache-control": "no-store", **headers})


def _query(request: Request) -> list[tuple[str, str]]:
    return _pairs(request.scope["query_string"].decode("ascii", "replace"))


async def _body(request: Request) -> bytes:
    return await read_body(request.headers, request.receive, _MAX_BODY)


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError) as exc:
        raise Fault(Kind.INVALID_INPUT, "The parameters are malformed.") from exc


def _response(answer: Bytes) -> Response:
    status, headers, body = answer
    response = Response(body, status)
    for name, value in headers:
        response.headers.append(name, value)
    return response
