"""Somebody who signs in to the console, by its pages but without a browser."""

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx


@asynccontextmanager
async def operator(gateway: Any, **filled: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose address is the console's, signed in with a `code`, or a `name` and a `password`."""
    async with httpx.AsyncClient(base_url=gateway.base, verify=False, timeout=30, follow_redirects=True) as http:
        await sign_in(http, "/console", **filled)
        yield http


async def sign_in(http: httpx.AsyncClient, path: str, **filled: str) -> httpx.Response:
    """What is shown in the end."""
    answer = await http.get(path)
    found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
    assert found is not None, answer.text
    form = {"csrf": html.unescape(found[1]), "what": "code" if "code" in filled else "password", **filled}
    return await http.post(str(answer.url), data=form)
