"""OAuth flow based on the OAuth client of the MCP SDK, used only to obtain and refresh tokens.

The SDK's client holds a lock during each request, which would serialize all calls; so requests are sent elsewhere.
It also does not persist expiry and token endpoint between processes; these are restored from the token store.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import (
    AuthorizationCodeResult,
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from gateway.cli.signin.callback import CallbackResult
from gateway.cli.signin.credential import AuthChallenge, ClientRegistration
from gateway.cli.signin.token_store import StoredTokens, stale_at
from gateway.contract import Json

LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
_TIMEOUT: Final = 30.0
_REFRESH_REJECTED: Final = frozenset({400, 401})
"""Statuses of a refresh after which the user must sign in again."""
_M = TypeVar("_M", bound=BaseModel)
_ERRORS: Final = frozenset(
    {
        "access_denied",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_response_type",
    }
)

# The SDK logs responses including tokens; relevant errors are raised.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())
logging.getLogger("mcp.client.auth").propagate = False


class FlowError(Exception):
    """The sign-in failed. The message is for the user and contains no secret."""


class ClientUnknownError(Exception):
    """The authorization server does not know the client any more; it must register again."""


class _NullTokenStorage:
    """Disables the token storage of the SDK, which stores less than needed; `TokenStore` is used instead."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class OAuthFlow(OAuthClientProvider):
    """One refresh or one sign-in. Raises `FlowError`, and `httpx2.HTTPError` for an unreachable server."""

    def __init__(self, url: str, registration: ClientRegistration, stored: StoredTokens | None, redirect: str) -> None:
        metadata = OAuthClientMetadata(
            client_name="Gatehouse",
            redirect_uris=[AnyUrl(redirect)],
            token_endpoint_auth_method="none",  # noqa: S106 - a public client, which has no secret
        )
        super().__init__(url, metadata, _NullTokenStorage(), client_metadata_url=registration.document)
        self._registration = registration
        self._stored = stored
        self._own_host = urlsplit(url).hostname or ""

    async def _initialize(self) -> None:
        context, stored = self.context, self._stored
        self._initialized = True
        if stored is not None:
            context.current_tokens = OAuthToken(
                access_token=stored.access_token, refresh_token=stored.refresh_token, scope=stored.scope or None
            )
            context.auth_server_url = stored.authorization_server
            context.protected_resource_metadata = _model(ProtectedResourceMetadata, stored.resource)
            context.oauth_metadata = _model(OAuthMetadata, stored.metadata)
            context.client_info = _model(OAuthClientInformationFull, stored.client)
        if self._registration.id is not None:
            self._use_supplied_client(self._registration.id)

    def _use_supplied_client(self, id: str) -> None:
        """Use the client registered by an operator; it stays bound to the issuer where it was used first."""
        previous = self.context.client_info
        issuer = previous.issuer if previous is not None and previous.client_id == id else None
        self.context.client_info = OAuthClientInformationFull(
            client_id=id, client_secret=self._registration.secret, issuer=issuer
        )

    async def refresh(self) -> StoredTokens | None:
        """Return new tokens; None if the user must sign in again. Also raises `ClientUnknownError`."""
        await self._initialize()
        if not self.context.can_refresh_token():
            return None
        self._choose_method()
        with _translate_errors():
            response = await self._send(await self._refresh_token())
        if response.status_code in _REFRESH_REJECTED:
            if _error(response) in ("invalid_client", "unauthorized_client"):
                raise ClientUnknownError
            return None
        if response.status_code != 200 or not await self._handle_refresh_response(response):
            raise FlowError(f"the token endpoint returned HTTP {response.status_code}")
        return self._stored_tokens()

    async def sign_in(
        self,
        challenge: AuthChallenge,
        open_url: Callable[[str], None],
        wait: Callable[[str], Awaitable[CallbackResult]],
    ) -> StoredTokens:
        """Sign the user in. `open_url` opens the browser; `wait` returns the redirect with the given state."""
        state = ""

        async def redirect(address: str) -> None:
            nonlocal state
            self._check_address(address)
            state = parse_qs(urlsplit(address).query)["state"][0]
            open_url(address)

        async def callback() -> AuthorizationCodeResult:
            result = await wait(state)
            if result.error:
                # The issuer of an error response is verified as well.
                validate_authorization_response_iss(result.iss, self.context.oauth_metadata)
                raise OAuthFlowError(f"it was denied ({result.error if result.error in _ERRORS else 'error'})")
            return AuthorizationCodeResult(code=result.code, state=result.state, iss=result.iss)

        self.context.redirect_handler, self.context.callback_handler = redirect, callback
        with _translate_errors():
            await self._run_flow(challenge)
        return self._stored_tokens()

    async def _run_flow(self, challenge: AuthChallenge) -> None:
        """Drive the SDK's flow with the challenge until it would repeat the original request."""
        await self._initialize()
        if self.context.current_tokens is not None:
            # The granted scopes are needed for a step-up; a refresh was tried before.
            self.context.current_tokens.refresh_token = None
        original = httpx2.Request("POST", self.context.server_url, headers={"MCP-Protocol-Version": challenge.version})
        if not challenge.version:
            del original.headers["MCP-Protocol-Version"]
        responses = iter(
            [httpx2.Response(challenge.status, headers={"WWW-Authenticate": challenge.header}, request=original)]
        )
        async with aclosing(self.async_auth_flow(original)) as flow:
            request = await anext(flow)
            while True:
                response = next(responses, None) if request is original else await self._send(request)
                if response is None:
                    return
                request = await flow.asend(response)

    async def _perform_authorization(self) -> httpx2.Request:
        metadata = self.context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError("its authorization server does not support PKCE with S256")
        self._choose_method()
        return await super()._perform_authorization()

    def _choose_method(self) -> None:
        """Choose how the client secret is sent: as the authorization server advertises, else basic (RFC 6749)."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if self._registration.secret is None or client is None or client.client_id != self._registration.id:
            return
        methods = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
        only_post = "client_secret_post" in methods and "client_secret_basic" not in methods
        client.token_endpoint_auth_method = "client_secret_post" if only_post else "client_secret_basic"

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        self._check_address(str(request.url))
        # Proxy and CA settings of the environment do not apply to loopback addresses.
        async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=request.url.host not in LOOPBACK_HOSTS) as http:
            return await http.send(request)

    def _check_address(self, address: str) -> None:
        """Allow https, and plain http to the user's own host. A remote server must not redirect to loopback ports."""
        parts = urlsplit(address)
        loopback = parts.hostname in LOOPBACK_HOSTS
        known = parts.hostname == self._own_host or (loopback and self._own_host in LOOPBACK_HOSTS)
        if (not known and (loopback or parts.scheme != "https")) or parts.scheme not in ("http", "https"):
            raise OAuthFlowError(f"it redirects to {parts.scheme}://{parts.hostname}, which is not safe")

    def _stored_tokens(self) -> StoredTokens:
        context, tokens, client = self.context, self.context.current_tokens, self.context.client_info
        assert tokens is not None
        assert client is not None
        if client.issuer is None and context.oauth_metadata is not None:
            client.issuer = self._expected_issuer()
        # The user supplies this secret at each start, so it is not stored.
        supplied = client.client_id == self._registration.id
        return StoredTokens(
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=tokens.scope or "",
            stale_at=stale_at(time.time(), tokens.expires_in),
            client=_dump(client, without={"client_secret"} if supplied else set()) or {},
            authorization_server=context.auth_server_url,
            resource=_dump(context.protected_resource_metadata),
            metadata=_dump(context.oauth_metadata),
        )


@contextmanager
def _translate_errors() -> Generator[None]:
    """Convert errors of the SDK, whose messages may contain text of a server, into `FlowError`."""
    try:
        yield
    except OAuthRegistrationError as exc:
        raise FlowError("it rejects dynamic client registration; give --client-id") from exc
    except OAuthTokenError as exc:
        raise FlowError("the token endpoint returned no token") from exc
    except OAuthFlowError as exc:
        raise FlowError(str(exc)) from exc
    except (httpx2.InvalidURL, ValueError) as exc:
        raise FlowError("its OAuth metadata is invalid") from exc


def _error(response: httpx2.Response) -> str:
    try:
        body: Any = response.json()
    except ValueError:
        return ""
    return str(cast("Json", body).get("error")) if isinstance(body, dict) else ""


def _model(kind: type[_M], value: Json | None) -> _M | None:
    try:
        return kind.model_validate(value) if value else None
    except ValidationError:
        return None


def _dump(model: BaseModel | None, without: set[str] | None = None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True, exclude=without)
