"""Builds the console: its data sources, and sign-in at the embedded or an external authorization server."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

import httpx

from gateway.approvals.review import ApprovalReview
from gateway.auth.jwks import MAX_BYTES, discover
from gateway.catalogue.catalogue import Catalogue
from gateway.console.page import ConsoleSources
from gateway.console.routes import ConsoleRoutes
from gateway.console.session import ENTRY_SCOPES, SCOPE, ConsoleSignIn, Form, SignInAuthority
from gateway.contract import Caller, Json, Route
from gateway.errors import Fault, Kind
from gateway.outbound import create_client as outbound_client
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.settings import Settings
from gateway.telemetry.trace_store import FILE
from gateway.wiring.identity import ACCOUNT_SCOPES, CONSOLE_CLIENT_ID, Identity
from gateway.wiring.operator_api import OperatorCallHistory
from gateway.wiring.outbound import outbound_route
from gateway.wiring.sealed_cookies import SealedCookies

log = logging.getLogger("gatehouse.console")

_TOKEN_SECONDS: Final = 3660.0
"""Longer than the lifetime of an access token."""
_ANONYMOUS: Final = Caller("default", "anonymous", scopes=frozenset({SCOPE}))


class BackendReport(Protocol):
    async def __call__(self, operator: Caller | None) -> list[Json]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleDependencies:
    """Dependencies of the console on the rest of the gateway."""

    call_history: OperatorCallHistory
    identity: Identity
    catalogue: Catalogue
    backends: BackendReport
    explain: Callable[[Caller, str, Json, bool, bool], Json]
    tenants: Callable[[], Sequence[str]]
    endpoints: Callable[[], Sequence[str]]
    is_authorized: Callable[[Caller], Awaitable[bool]]
    seal: TokenSeal
    version: str
    approvals: ApprovalReview
    is_approver: Callable[[Caller], bool]


def open_console(
    settings: Settings, public_url: str, host_allowed: Callable[[str], bool], dependencies: ConsoleDependencies
) -> ConsoleRoutes:
    def tools(caller: Caller | None) -> Mapping[str, Route]:
        view = dependencies.catalogue.full_view() if caller is None else dependencies.catalogue.view(caller, "/mcp")
        return view.tools if view else {}

    sources = ConsoleSources(
        calls=dependencies.call_history.calls,
        trace_store=settings.data_dir / FILE,
        visible_tenant=dependencies.call_history.visible_tenant,
        calls_in_progress=dependencies.call_history.running,
        backends=dependencies.backends,
        tools=tools,
        check_policy=dependencies.explain,
        tenants=dependencies.tenants,
        endpoints=dependencies.endpoints,
        public_url=public_url,
        trace_url=settings.console.trace_url,
        version=dependencies.version,
        approvals=dependencies.approvals,
        is_approver=dependencies.is_approver,
    )
    url = settings.server.operators_url(public_url)
    sign_in = ConsoleSignIn(
        authority=sign_in_authority(settings, public_url, dependencies.identity, CONSOLE_CLIENT_ID),
        anonymous=_ANONYMOUS,
        cookie_seal=SealedCookies(dependencies.seal),
        verify_token=dependencies.identity.credentials.verify,
        is_valid=dependencies.is_authorized,
        redirect_uri=f"{url}/console/signed-in",
        resource=f"{public_url}/mcp",
    )
    return ConsoleRoutes(sources, sign_in, url, host_allowed, ops_port_only=settings.server.ops_port is not None)


def sign_in_authority(
    settings: Settings, public_url: str, identity: Identity, client_id: str
) -> SignInAuthority | None:
    """The authorization server at which browsers sign in. `client_id` is the client at the embedded one."""
    match settings.auth.mode:
        case "none":
            return None
        case "embedded":
            return _embedded_authority(public_url, identity, client_id)
        case "external":
            return _ExternalAuthority(settings, public_url, identity).authority()


def _embedded_authority(public_url: str, identity: Identity, client_id: str) -> SignInAuthority:
    """The embedded authorization server, called in this process; only the browser uses its URLs."""
    provider = identity.authorization_server

    async def authorize() -> str:
        return f"{public_url}/oauth/authorize"

    async def exchange(form: Form) -> str | None:
        status, _, body = await provider.token({}, list(form.items()))
        return str(cast("Json", body)["access_token"]) if status == 200 else None

    async def leave(caller: Caller | None, cookies: Mapping[str, str]) -> list[str]:
        if caller is not None:
            await identity.revocations.add("token", caller.token, _TOKEN_SECONDS)
        return await provider.sign_out(cookies)

    scopes = ENTRY_SCOPES if client_id == CONSOLE_CLIENT_ID else ACCOUNT_SCOPES
    return SignInAuthority(public_url, client_id, " ".join(scopes), authorize, exchange, leave)


class _ExternalAuthority:
    """An external identity provider: its pages sign the user in, and its token carries the scopes."""

    def __init__(self, settings: Settings, public_url: str, identity: Identity) -> None:
        entry = settings.auth.issuers[0]
        self._settings = settings
        self._public_url = public_url
        self._issuer = entry.issuer
        self._plain = entry.allow_private
        self._console = settings.console
        self._identity = identity
        self._http = outbound_client(
            allow_private=entry.allow_private, max_bytes=MAX_BYTES, timeout=5.0, route=outbound_route(settings)
        )
        identity.on_close(self._http.aclose)

    def authority(self) -> SignInAuthority:
        return SignInAuthority(
            issuer=self._issuer,
            client_id=self._console.client_id,
            scopes=" ".join(self._console.asks_for),
            authorization_endpoint=self._authorize,
            exchange_code=self._exchange,
            sign_out=self._sign_out,
            requirements=f"The token of {self._issuer} must be for {self._public_url}/mcp and name {SCOPE},"
            " or what auth.issuers maps to it.",
        )

    async def _authorize(self) -> str:
        if not self._console.client_id:
            back = f"{self._settings.server.operators_url(self._public_url)}/console/signed-in"
            raise Fault(
                Kind.UNAVAILABLE,
                f"Console sign-in is not configured. Register the console as a client at {self._issuer} with the"
                f" redirect URI {back}, and set console.client_id to its client id.",
            )
        return await self._endpoint("authorization_endpoint")

    async def _exchange(self, form: Form) -> str | None:
        secret = self._console.client_secret
        auth = httpx.Auth()  # sends nothing
        if secret is not None:
            auth = httpx.BasicAuth(self._console.client_id, secret.get_secret_value())
        try:
            answer = await self._http.post(await self._endpoint("token_endpoint"), data=dict(form), auth=auth)
            body: Any = answer.json()
        except (httpx.HTTPError, ValueError) as exc:
            raise Fault(Kind.UNAVAILABLE, "The identity provider is unreachable. Retry later.", retry_after=5) from exc
        token: Any = cast("Json", body).get("access_token") if isinstance(body, dict) else None
        return token if answer.status_code == 200 and isinstance(token, str) else None

    async def _sign_out(self, caller: Caller | None, cookies: Mapping[str, str]) -> list[str]:
        """End this session only; the session at the provider stays."""
        if caller is not None:
            await self._identity.revocations.add("token", caller.token, _TOKEN_SECONDS)
        return []

    async def _endpoint(self, name: str) -> str:
        try:
            found: Any = (await discover(self._http, self._issuer)).get(name)
        except Exception as exc:
            # The user sees one error for every cause; the log has the details.
            log.warning("console: discovery document of %s not readable; sign-in fails", self._issuer, exc_info=True)
            raise Fault(Kind.UNAVAILABLE, "The identity provider is unreachable. Retry later.", retry_after=5) from exc
        scheme = urlsplit(found).scheme if isinstance(found, str) else ""
        if scheme != "https" and not (scheme == "http" and self._plain):
            raise Fault(Kind.UNAVAILABLE, "The identity provider's discovery document names no usable endpoint.")
        return cast("str", found)
