"""A server that speaks GitHub's OAuth and REST API, as GitHub Enterprise Server does below `/api/v3`.

It answers as GitHub documents it: errors of the token endpoint have the status 200, and lists have pages.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

Json = dict[str, Any]


class GithubApi:
    """One user, who is always signed in and has authorized the application."""

    def __init__(self) -> None:
        self.user: Json = {"id": 583231, "login": "octocat", "name": "The Octocat", "email": "public@example.org"}
        self.emails: list[Json] = [{"email": "octocat@example.com", "primary": True, "verified": True}]
        self.organisations = [f"org-{number}" for number in range(120)]
        self.teams = [("acme", "developers")]
        self.codes: dict[str, Json] = {}
        self.tokens: set[str] = set()
        self.issuer = ""

    def authorize(self, query: Json) -> str:
        code = secrets.token_hex(10)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: Json) -> Json:
        asked = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (form.get("client_id"), form.get("client_secret")) != ("Iv1.gatehouse", "github-secret"):
            return {"error": "incorrect_client_credentials"}
        if asked is None or asked["redirect_uri"] != form["redirect_uri"] or asked["code_challenge"] != challenge:
            return {"error": "bad_verification_code", "error_description": "The code passed is incorrect or expired."}
        token = f"gho_{secrets.token_hex(18)}"
        self.tokens.add(token)
        return {"access_token": token, "scope": asked["scope"].replace(" ", ","), "token_type": "bearer"}

    def read(self, path: str, query: Json) -> Any:
        page, size = int(query.get("page", 1)), int(query.get("per_page", 30))
        teams = [{"slug": slug, "organization": {"login": login}} for login, slug in self.teams]
        lists: dict[str, list[Json]] = {
            "/user/emails": self.emails,
            "/user/orgs": [{"login": name} for name in self.organisations],
            "/user/teams": teams,
        }
        return self.user if path == "/user" else lists[path][(page - 1) * size : page * size]


@contextmanager
def github_api() -> Generator[GithubApi]:
    api = GithubApi()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            if parts.path == "/login/oauth/authorize":
                self.send_response(302)
                self.send_header("location", api.authorize(query))
                self.end_headers()
            elif self.headers.get("authorization", "").removeprefix("Bearer ") not in api.tokens:
                self._answer(401, {"message": "Bad credentials"})
            else:
                self._answer(200, api.read(parts.path.removeprefix("/api/v3"), query))

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
            self._answer(200, api.exchange(form))

        def _answer(self, status: int, body: Any) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json; charset=utf-8")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    api.issuer = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
