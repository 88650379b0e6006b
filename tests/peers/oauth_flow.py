"""An OAuth client and a user with a browser, for tests of the authorization flow."""

import base64
import hashlib
import html
import re
import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

Json = dict[str, Any]
CALLBACK = "http://127.0.0.1:8765/callback"


def pkce_pair() -> tuple[str, str]:
    """Return a PKCE verifier and its S256 challenge."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    return verifier, base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Visitor(Protocol):
    """A person with a browser."""

    async def visit(self, url: str) -> dict[str, str]:
        """Follow the pages and return the query of the callback; the key `to` holds the callback URL."""
        ...


@dataclass
class BrowserUser:
    """Signs in with `code` (single use) or with `name` and `password`; consents unless `decision` differs."""

    code: str = ""
    name: str = ""
    password: str = ""
    decision: str = "allow"
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)
    pages: list[httpx.Response] = field(default_factory=list[httpx.Response])

    async def visit(self, url: str) -> dict[str, str]:
        """Follow the pages and return the query of the callback; the key `to` holds the callback URL."""
        async with httpx.AsyncClient(verify=False, cookies=self.cookies, timeout=30) as http:
            answer = await http.get(url)
            for _ in range(8):
                self.pages.append(answer)
                self.cookies.update(http.cookies)
                if answer.is_redirect:
                    target = answer.headers["location"]
                    if not target.startswith("/"):
                        parts = urlsplit(target)
                        query = dict(parse_qsl(parts.query, keep_blank_values=True))
                        return {**query, "to": target.partition("?")[0]}
                    answer = await http.get(str(answer.url.join(target)))
                    continue
                assert answer.status_code == 200, answer.text
                answer = await http.post(answer.url, data=self._fill(answer.text))
        raise AssertionError("the pages did not redirect to the callback")

    def _fill(self, page: str) -> dict[str, str]:
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        assert found is not None, page
        csrf = html.unescape(found[1])
        if 'name="decision"' in page:
            return {"csrf": csrf, "what": "consent", "decision": self.decision}
        if self.code:
            return {"csrf": csrf, "what": "code", "code": self.code}
        return {"csrf": csrf, "what": "password", "name": self.name, "password": self.password}


@dataclass(frozen=True)
class OAuthTestClient:
    """A minimal OAuth client that can send requests which a real client would not send."""

    base: str
    id: str
    redirect: str = CALLBACK
    secret: str = ""

    @classmethod
    async def register(cls, base: str, redirect: str = CALLBACK, **metadata: Any) -> "OAuthTestClient":
        body: Json = {"client_name": "Test program", "redirect_uris": [redirect], **metadata}
        async with httpx.AsyncClient(verify=False, timeout=30) as http:
            answer = await http.post(f"{base}/oauth/register", json=body)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        return cls(base, made["client_id"], redirect, made.get("client_secret", ""))

    def authorization_url(self, challenge: str, **changes: str | None) -> str:
        query: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect,
            "state": "st4te",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": f"{self.base}/mcp",
            "scope": "mcp:list mcp:call mcp:call:write",
            **changes,
        }
        return f"{self.base}/oauth/authorize?{urlencode({k: v for k, v in query.items() if v is not None})}"

    async def obtain_code(self, user: Visitor, **changes: str | None) -> tuple[str, str]:
        """Run the authorization flow and return the code with its PKCE verifier."""
        verifier, challenge = pkce_pair()
        callback = await user.visit(self.authorization_url(challenge, **changes))
        return callback["code"], verifier

    async def post(self, path: str = "token", auth: Any = None, **form: str) -> httpx.Response:
        sent = {"client_id": self.id, **form} if auth is None else form
        async with httpx.AsyncClient(verify=False, timeout=30) as http:
            return await http.request("POST", f"{self.base}/oauth/{path}", data=sent, auth=auth)

    async def redeem(self, code: str, verifier: str, **form: str) -> httpx.Response:
        sent = {"redirect_uri": self.redirect, "code": code, "code_verifier": verifier, **form}
        return await self.post(grant_type="authorization_code", **sent)

    async def sign_in(self, user: Visitor, **changes: str | None) -> Json:
        answer = await self.redeem(*await self.obtain_code(user, **changes))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refresh(self, token: str, **form: str) -> httpx.Response:
        return await self.post(grant_type="refresh_token", refresh_token=token, **form)
