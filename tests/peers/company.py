"""A company's identity provider from npm, and a user with a browser who signs in there."""

import html
import json
import re
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.peers import npm

Json = dict[str, Any]
SECRET = "s3cret/with+signs"


def free_port() -> int:
    """Return a free port. Provider and gateway must know each other's address before they start."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@dataclass
class CompanyProvider:
    """A running provider with users who all have the password of their choice."""

    issuer: str
    port: int
    """Port that the gateway must use."""
    process: subprocess.Popen[str]

    def order(self, **order: Any) -> list[str]:
        """Change the provider and return the requests that it received since the last order."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["seen"]

    def settings(self, **more: Any) -> Json:
        """Return the entry of `auth.providers` for this provider."""
        rules = [
            {"group": "dev", "tenant": "acme", "groups": ["builders"], "scopes": ["mcp:list", "mcp:call"]},
            {"group": "staff", "tenant": "acme", "scopes": ["mcp:list"]},
        ]
        return {
            "issuer": self.issuer, "client_id": "gatehouse", "client_secret": SECRET, "allow_private": True,
            "label": "Company", "rules": rules, "admin_group": "chiefs", "contact": "Ask it@example.com.", **more,
        }  # fmt: skip


@contextmanager
def company_provider(name: str = "company", port: int | None = None, **options: Any) -> Generator[CompanyProvider]:
    """Run a provider for the gateway that will listen on `port`; `name` is its name in the gateway's settings."""
    port = port or free_port()
    gateway = f"http://127.0.0.1:{port}/oauth"
    settings = {"redirect_uri": f"{gateway}/callback/{name}", "logout_uri": f"{gateway}/logout/{name}", **options}
    script = Path(npm.__file__).with_name("company_idp.mjs")
    command = [str(npm.NODE), str(script), str(npm.install_package(npm.OIDC)), json.dumps(settings)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield CompanyProvider(json.loads(process.stdout.readline())["issuer"], port, process)
        process.stdin.close()
        process.wait(10)


@dataclass
class CompanyUser:
    """Consents at the gateway, signs in at the provider, and follows every page until the client's callback."""

    name: str = "alice"
    provider: str = "company"
    until: str = "/callback"
    decision: str = ""
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)
    pages: list[httpx.Response] = field(default_factory=list[httpx.Response])

    async def visit(self, url: str) -> dict[str, str]:
        """Return the query of the callback; the key `to` holds the callback URL."""
        answer = await self.follow(url)
        assert answer.is_redirect, (answer.status_code, str(answer.url), answer.text)
        target = str(answer.url.join(answer.headers["location"]))
        return {**dict(parse_qsl(urlsplit(target).query, keep_blank_values=True)), "to": target.partition("?")[0]}

    async def follow(self, url: str) -> httpx.Response:
        """Return the redirect to the path `until`, or the page that ends the sign-in."""
        async with httpx.AsyncClient(verify=False, cookies=self.cookies, timeout=30) as http:
            answer = await http.get(url)
            for _ in range(16):
                self.pages.append(answer)
                for cookie in http.cookies.jar:
                    cookie.secure = False  # browsers send secure cookies to loopback addresses over plain HTTP too
                self.cookies.update(http.cookies)
                if answer.is_redirect:
                    target = str(answer.url.join(answer.headers["location"]))
                    if urlsplit(target).path == self.until:
                        return answer
                    answer = await http.get(target)
                elif (onward := re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', answer.text)) is not None:
                    answer = await http.get(html.unescape(onward[1]))
                elif answer.status_code != 200 or "<form" not in answer.text:
                    return answer
                else:
                    answer = await self._submit(http, answer)
        raise AssertionError("the pages did not redirect to the callback")

    async def _submit(self, http: httpx.AsyncClient, page: httpx.Response) -> httpx.Response:
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
        if 'name="csrf"' in page.text:
            data = {"csrf": fields["csrf"]}
            if 'name="provider"' in page.text:
                data |= {"what": "provider", "decision": self.decision}
                data |= {} if self.decision else {"provider": self.provider}
            else:
                data |= {"what": "consent", "decision": self.decision or "allow"}
            return await http.post(str(page.url), data=data)
        form = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        assert form is not None, page.text
        data = {**fields, "login": self.name, "password": "anything"}
        return await http.post(str(page.url.join(html.unescape(form[1]))), data=data)
