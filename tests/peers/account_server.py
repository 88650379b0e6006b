"""A remote MCP server of both eras with its own OAuth authorization server: each user has an account there.

It checks every token: who it was issued to, and whether it is still valid. Tokens can be short-lived, and refresh
tokens are rotated strictly or with a grace period.
"""

import asyncio
import base64
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.in_process_server import InProcessServer

Json = dict[str, Any]
MODERN = "2026-07-28"
WHOAMI = {"name": "whoami", "description": "Who calls.", "inputSchema": {"type": "object"}}


@dataclass
class Issued:
    subject: str
    scopes: str
    expires: float = 0.0
    client: str = ""
    revoked: bool = False
    rotated_at: float | None = None


@dataclass
class AccountServer:
    """The knobs and the records of the server. `login` is the user of the browser that visits its sign-in."""

    lifetime: float = 3600.0
    grace: float = 0.0
    """Seconds for which a rotated refresh token is still accepted."""
    login: str = "octocat"
    scopes: str = "read"
    public_lists: bool = True
    has_refresh: bool = True
    issuer_parameter: bool = True
    wrong_issuer: str | None = None
    required_scope: str | None = None
    on_refresh: Callable[[str, str], Awaitable[None]] | None = None
    """Called with the subject before the rotation (`received`) and after it (`rotated`)."""
    port: int = 0
    clients: dict[str, Json] = field(default_factory=dict)
    codes: dict[str, Json] = field(default_factory=dict)
    access: dict[str, Issued] = field(default_factory=dict)
    refresh: dict[str, Issued] = field(default_factory=dict)
    refreshes: Counter[str] = field(default_factory=Counter)
    refused_grants: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    """Why requests with a token were refused: `stale`, `unknown` or `revoked`."""
    seen_headers: list[dict[str, str]] = field(default_factory=list)
    revocations: list[str] = field(default_factory=list)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    # ---- authorization server ----

    async def resource_metadata(self, request: Request) -> Response:
        return JSONResponse(
            {"resource": self.url, "authorization_servers": [self.base], "scopes_supported": self.scopes.split()}
        )

    async def server_metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.base,
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "registration_endpoint": f"{self.base}/register",
                "revocation_endpoint": f"{self.base}/revoke",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
                "authorization_response_iss_parameter_supported": self.issuer_parameter,
            }
        )

    async def register(self, request: Request) -> Response:
        client = {"client_id": secrets.token_hex(8), **await request.json()}
        self.clients[client["client_id"]] = client
        return JSONResponse(client, 201)

    async def authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        client = self.clients.get(query.get("client_id", ""))
        if client is None or query.get("redirect_uri") not in client["redirect_uris"]:
            return HTMLResponse("unknown client or redirect", 400)
        assert query["code_challenge_method"] == "S256"
        assert query["resource"] == self.url
        code = secrets.token_hex(16)
        self.codes[code] = {**query, "subject": self.login}
        answer = {"code": code, "state": query["state"]}
        if self.issuer_parameter or self.wrong_issuer is not None:
            answer["iss"] = self.wrong_issuer or self.base
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(answer)}", 302)

    async def token(self, request: Request) -> Response:
        form = dict(await request.form())
        if form["grant_type"] == "authorization_code":
            code = self.codes.pop(str(form["code"]), None)
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if code is None or code["code_challenge"] != challenge or code["redirect_uri"] != form["redirect_uri"]:
                return JSONResponse({"error": "invalid_grant"}, 400)
            return JSONResponse(self._issue(code["subject"], code.get("scope", ""), str(form["client_id"])))
        return await self._refresh(str(form["refresh_token"]), str(form["client_id"]))

    async def _refresh(self, text: str, client: str) -> Response:
        known = self.refresh.get(text)
        if known is not None and self.on_refresh is not None:
            await self.on_refresh("received", known.subject)
        now = time.time()
        late = known is not None and known.rotated_at is not None and now > known.rotated_at + self.grace
        if known is None or known.revoked or late or known.client != client:
            if known is not None:
                self.refused_grants[known.subject] += 1
            return JSONResponse({"error": "invalid_grant"}, 400)
        known.rotated_at = known.rotated_at or now
        self.refreshes[known.subject] += 1
        answer = self._issue(known.subject, known.scopes, client)
        if self.on_refresh is not None:
            await self.on_refresh("rotated", known.subject)
        return JSONResponse(answer)

    def _issue(self, subject: str, scopes: str, client: str) -> Json:
        access = f"canary-access-{secrets.token_hex(12)}"
        self.access[access] = Issued(subject, scopes, time.time() + self.lifetime, client)
        answer: Json = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime, "scope": scopes}
        if self.has_refresh:
            refresh = answer["refresh_token"] = f"canary-refresh-{secrets.token_hex(12)}"
            self.refresh[refresh] = Issued(subject, scopes, client=client)
        return answer

    async def revoke(self, request: Request) -> Response:
        token = str((await request.form())["token"])
        self.revocations.append(token)
        for issued in (self.access.get(token), self.refresh.get(token)):
            if issued is not None:
                issued.revoked = True
        return Response(status_code=200)

    # ---- MCP server ----

    async def mcp(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method = message["method"]
        authorization = request.headers.get("authorization", "")
        self.seen_headers.append(dict(request.headers))
        listing = method in ("server/discover", "tools/list", "initialize", "notifications/initialized")
        if not authorization and not (listing and self.public_lists):
            return self._challenge()
        issued = self.access.get(authorization.removeprefix("Bearer "))
        if authorization:
            problem = _problem(issued)
            if problem is not None:
                self.rejected.append(problem)
                return self._challenge('error="invalid_token", ')
        if method == "tools/call" and self.required_scope is not None:
            assert issued is not None
            if self.required_scope not in issued.scopes.split():
                demand = f'Bearer error="insufficient_scope", scope="{self.required_scope}"'
                return Response(status_code=403, headers={"www-authenticate": demand})
        if "id" not in message:
            return Response(status_code=202)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": self._result(method, issued)})

    def _challenge(self, error: str = "") -> Response:
        where = f"{self.base}/.well-known/oauth-protected-resource/mcp"
        return Response(status_code=401, headers={"www-authenticate": f'Bearer {error}resource_metadata="{where}"'})

    def _result(self, method: str, issued: Issued | None) -> Json:
        info = {"name": "accounts", "version": "1"}
        if method == "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": info, "ttlMs": 0,
                    "cacheScope": "private", "resultType": "complete"}  # fmt: skip
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        if method == "tools/list":
            own = [{**WHOAMI, "name": f"of_{issued.subject}"}] if issued is not None else []
            return {"tools": [WHOAMI, *own], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
        assert issued is not None
        self.calls[issued.subject] += 1
        return {"content": [{"type": "text", "text": issued.subject}], "resultType": "complete"}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AccountServer"]:
        prm = "/.well-known/oauth-protected-resource"
        app = Starlette(
            routes=[
                Route(prm, self.resource_metadata),
                Route(f"{prm}/mcp", self.resource_metadata),
                Route("/.well-known/oauth-authorization-server", self.server_metadata),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/revoke", self.revoke, methods=["POST"]),
                Route("/mcp", self.mcp, methods=["GET", "POST", "DELETE"]),
            ]
        )
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
        async with InProcessServer(config).running(force=True) as port:
            self.port = port
            yield self
            await asyncio.sleep(0)


def _problem(issued: Issued | None) -> str | None:
    if issued is None:
        return "unknown"
    if issued.revoked:
        return "revoked"
    return "stale" if time.time() > issued.expires else None
