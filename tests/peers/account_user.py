"""A user with a browser who connects accounts on the gateway's pages."""

import html
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import httpx


@dataclass
class AccountUser:
    """Follows links, redirects and forms as a browser does. Signs in with name and password when asked."""

    name: str
    password: str
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)

    async def open(self, url: str) -> httpx.Response:
        """Open a page; signs in at the gateway if its sign-in page appears."""
        async with self._browser() as http:
            page = await self._follow(http, await http.get(url))
            self.cookies.update(http.cookies)
            return page

    async def submit(self, page: httpx.Response, **fields: str) -> httpx.Response:
        """Submit the last form of a page that has no other action, or the one whose action is `action`."""
        action = fields.pop("action", "")
        async with self._browser() as http:
            answer = await http.post(
                urljoin(str(page.url), action) if action else page.url, data={"csrf": csrf_of(page.text), **fields}
            )
            answer = await self._follow(http, answer)
            self.cookies.update(http.cookies)
            return answer

    async def connect(self, url: str, **fields: str) -> httpx.Response:
        """Open a connect link, agree, sign in at the server, and return the last page."""
        page = await self.open(url)
        assert page.status_code == 200, page.text
        return await self.submit(page, **fields)

    def _browser(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=False, cookies=self.cookies, timeout=30)

    async def _follow(self, http: httpx.AsyncClient, page: httpx.Response) -> httpx.Response:
        for _ in range(20):
            refresh = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', page.text)
            if page.is_redirect:
                page = await http.get(str(page.url.join(page.headers["location"])))
            elif refresh is not None:
                page = await http.get(html.unescape(refresh[1]))
            elif 'name="password"' in page.text and 'name="what"' in page.text:
                form = {"csrf": csrf_of(page.text), "what": "password", "name": self.name, "password": self.password}
                page = await http.post(page.url, data=form)
            elif 'name="decision"' in page.text:
                form = {"csrf": csrf_of(page.text), "what": "consent", "decision": "allow"}
                page = await http.post(page.url, data=form)
            else:
                return page
        raise AssertionError(f"too many pages, the last is {page.url}")


def csrf_of(page: str) -> str:
    found = re.findall(r'name="csrf" value="([^"]+)"', page)
    assert found, page
    return html.unescape(found[-1])


async def add_user(gateway: Any, tenant: str, name: str, **more: Any) -> AccountUser:
    """Create a user of a running gateway who signs in with a password."""
    from gateway.contract.caller import DEFAULT_SCOPES

    await gateway.app.identity.users.put(tenant, name, f"pw-{name}-0000", more.pop("scopes", DEFAULT_SCOPES), **more)
    return AccountUser(f"{tenant}/{name}", f"pw-{name}-0000")
