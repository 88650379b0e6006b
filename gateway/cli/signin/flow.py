"""The SDK's own OAuth client, fed with what a server answered to a request of ours, and asked for nothing but tokens.

It would hold one lock from a request to its answer, so that no two calls could run at a time; so requests stay outside.
What it forgets between processes, when tokens end and where they are refreshed, is put back from what was kept.
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

LOCAL: Final = ("127.0.0.1", "localhost", "::1")
_TIMEOUT: Final = 30.0
_GIVEN_UP: Final = frozenset({400, 401})
"""Answers to a refresh after which only a person can help."""
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

# It logs what servers said, tokens and all; what matters is raised.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())
logging.getLogger("mcp.client.auth").propagate = False


class FlowError(Exception):
    """Signing in did not work. Its text is for the user and holds no secret."""


class ClientUnknownError(Exception):
    """The authorization server has forgotten who this is; it has to be told anew."""


class _Unkept:
    """The SDK's idea of a store: it would keep less than is needed, so that it keeps nothing."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class OAuthFlow(OAuthClientProvider):
    """One refresh or one sign-in. Raises `FlowError`, and `httpx2.HTTPError` for a server that is away."""

    def __init__(self, url: str, program: ClientRegistration, kept: StoredTokens | None, redirect: str) -> None:
        metadata = OAuthClientMetadata(
            client_name="Gatehouse",
            redirect_uris=[AnyUrl(redirect)],
            token_endpoint_auth_method="none",  # noqa: S106 - a public client, which has no secret
        )
        super().__init__(url, metadata, _Unkept(), client_metadata_url=program.document)
        self._program = program
        self._kept = kept
        self._own_host = urlsplit(url).hostname or ""

    async def _initialize(self) -> None:
        context, kept = self.context, self._kept
        self._initialized = True
        if kept is not None:
            context.current_tokens = OAuthToken(
                access_token=kept.access_token, refresh_token=kept.refresh_token, scope=kept.scope or None
            )
            context.auth_server_url = kept.authorization_server
            context.protected_resource_metadata = _model(ProtectedResourceMetadata, kept.resource)
            context.oauth_metadata = _model(OAuthMetadata, kept.metadata)
            context.client_info = _model(OAuthClientInformationFull, kept.client)
        if self._program.id is not None:
            self._be_the_given_client(self._program.id)

    def _be_the_given_client(self, id: str) -> None:
        """Registered by an operator. It stays with the authorization server where it was used first."""
        before = self.context.client_info
        issuer = before.issuer if before is not None and before.client_id == id else None
        self.context.client_info = OAuthClientInformationFull(
            client_id=id, client_secret=self._program.secret, issuer=issuer
        )

    async def refresh(self) -> StoredTokens | None:
        """The sign-in with new tokens; None if only a person can help. Also raises `ClientUnknownError`."""
        await self._initialize()
        if not self.context.can_refresh_token():
            return None
        self._choose_method()
        with _worded():
            answer = await self._sent(await self._refresh_token())
        if answer.status_code in _GIVEN_UP:
            if _error(answer) in ("invalid_client", "unauthorized_client"):
                raise ClientUnknownError
            return None
        if answer.status_code != 200 or not await self._handle_refresh_response(answer):
            raise FlowError(f"the token endpoint answered HTTP {answer.status_code}")
        return self._to_keep()

    async def sign_in(
        self, challenge: AuthChallenge, show: Callable[[str], None], wait: Callable[[str], Awaitable[CallbackResult]]
    ) -> StoredTokens:
        """`show` opens an address; `wait` ends when the browser is back with that state."""
        state = ""

        async def redirect(address: str) -> None:
            nonlocal state
            self._check_address(address)
            state = parse_qs(urlsplit(address).query)["state"][0]
            show(address)

        async def callback() -> AuthorizationCodeResult:
            back = await wait(state)
            if back.error:
                # Also an error counts only from whom it was asked.
                validate_authorization_response_iss(back.iss, self.context.oauth_metadata)
                raise OAuthFlowError(f"it was refused ({back.error if back.error in _ERRORS else 'error'})")
            return AuthorizationCodeResult(code=back.code, state=back.state, iss=back.iss)

        self.context.redirect_handler, self.context.callback_handler = redirect, callback
        with _worded():
            await self._drive(challenge)
        return self._to_keep()

    async def _drive(self, challenge: AuthChallenge) -> None:
        """Answer what it asks until it would send our request once more."""
        await self._initialize()
        if self.context.current_tokens is not None:
            # What was granted counts for a step up; a refresh had its turn before.
            self.context.current_tokens.refresh_token = None
        ours = httpx2.Request("POST", self.context.server_url, headers={"MCP-Protocol-Version": challenge.version})
        if not challenge.version:
            del ours.headers["MCP-Protocol-Version"]
        answers = iter(
            [httpx2.Response(challenge.status, headers={"WWW-Authenticate": challenge.header}, request=ours)]
        )
        async with aclosing(self.async_auth_flow(ours)) as flow:
            asked = await anext(flow)
            while True:
                answer = next(answers, None) if asked is ours else await self._sent(asked)
                if answer is None:
                    return
                asked = await flow.asend(answer)

    async def _perform_authorization(self) -> httpx2.Request:
        metadata = self.context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError("its authorization server does not know PKCE with S256")
        self._choose_method()
        return await super()._perform_authorization()

    def _choose_method(self) -> None:
        """How a given client's secret is sent: as the authorization server says, else as RFC 6749 says."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if self._program.secret is None or client is None or client.client_id != self._program.id:
            return
        methods = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
        only_post = "client_secret_post" in methods and "client_secret_basic" not in methods
        client.token_endpoint_auth_method = "client_secret_post" if only_post else "client_secret_basic"

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        self._check_address(str(request.url))
        # Proxies and authorities of the environment are for the way out of this machine.
        async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=request.url.host not in LOCAL) as http:
            return await http.send(request)

    def _check_address(self, address: str) -> None:
        """Https; plain http to the host that the user named. Nobody elsewhere sends us to this machine's own ports."""
        parts = urlsplit(address)
        inside = parts.hostname in LOCAL
        known = parts.hostname == self._own_host or (inside and self._own_host in LOCAL)
        if (not known and (inside or parts.scheme != "https")) or parts.scheme not in ("http", "https"):
            raise OAuthFlowError(f"it sends you to {parts.scheme}://{parts.hostname}, which is not safe")

    def _to_keep(self) -> StoredTokens:
        context, tokens, client = self.context, self.context.current_tokens, self.context.client_info
        assert tokens is not None
        assert client is not None
        if client.issuer is None and context.oauth_metadata is not None:
            client.issuer = self._expected_issuer()
        # What the user gives each time need not lie in a file.
        given = client.client_id == self._program.id
        return StoredTokens(
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            scope=tokens.scope or "",
            stale_at=stale_at(time.time(), tokens.expires_in),
            client=_plain(client, without={"client_secret"} if given else set()) or {},
            authorization_server=context.auth_server_url,
            resource=_plain(context.protected_resource_metadata),
            metadata=_plain(context.oauth_metadata),
        )


@contextmanager
def _worded() -> Generator[None]:
    """What the SDK says of it may hold a server's words; ours may not."""
    try:
        yield
    except OAuthRegistrationError as exc:
        raise FlowError("it registers no new clients; give --client-id") from exc
    except OAuthTokenError as exc:
        raise FlowError("no token was given for the sign-in") from exc
    except OAuthFlowError as exc:
        raise FlowError(str(exc)) from exc
    except (httpx2.InvalidURL, ValueError) as exc:
        raise FlowError("what its servers say of themselves cannot be read") from exc


def _error(answer: httpx2.Response) -> str:
    try:
        said: Any = answer.json()
    except ValueError:
        return ""
    return str(cast("Json", said).get("error")) if isinstance(said, dict) else ""


def _model(kind: type[_M], given: Json | None) -> _M | None:
    try:
        return kind.model_validate(given) if given else None
    except ValidationError:
        return None


def _plain(model: BaseModel | None, without: set[str] | None = None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True, exclude=without)
