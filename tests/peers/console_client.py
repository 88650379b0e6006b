"""An HTTP client that signs in to the console through its pages, without a browser."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx


@asynccontextmanager
async def console_client(gateway: Any, **credentials: str) -> AsyncIterator[httpx.AsyncClient]:
    """Open a client for the gateway, signed in to the console with `code`, or with `name` and `password`."""
    async with httpx.AsyncClient(base_url=gateway.base, verify=False, timeout=30, follow_redirects=True) as http:
        await sign_in(http, "/console", **credentials)
        yield http


async def sign_in(http: httpx.AsyncClient, path: str, **credentials: str) -> httpx.Response:
    """Submit the sign-in form and return the final response."""
    answer = await http.get(path)
    found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    form = {"csrf": html.unescape(found[1]), "what": "code" if "code" in credentials else "password", **credentials}
    return await http.post(str(answer.url), data=form)
