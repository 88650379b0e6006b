"""A person in a real browser: signs in, agrees, and the program has its token. No script runs on the way."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from playwright.async_api import Page

from tests.peers.browser import scriptless_page
from tests.peers.oauth_flow import OAuthTestClient, pkce_pair

PICTURES = os.environ.get("GATEHOUSE_PICTURES")
"""A folder for pictures of the pages, when somebody wants new ones."""


@asynccontextmanager
async def waiting_program() -> AsyncIterator[tuple[str, "asyncio.Future[dict[str, str]]"]]:
    """A program's callback on loopback, and what it will be told."""
    told: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        if path.startswith("/callback?") and not told.done():
            told.set_result(dict(parse_qsl(path.partition("?")[2])))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback", told
    finally:
        server.close()


async def _picture(page: Page, name: str) -> None:
    if PICTURES:
        await page.locator("main").screenshot(path=Path(PICTURES) / f"{name}.png")


async def test_a_person_signs_in_with_the_code_and_agrees(start: Any) -> None:
    async with start() as gateway, waiting_program() as (callback, told), scriptless_page() as page:
        program = await OAuthTestClient.register(gateway.base, callback, client_name="Claude Code")
        verifier, challenge = pkce_pair()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        await page.goto(program.authorization_url(challenge))
        await _picture(page, "sign-in")
        await page.get_by_label("Code from the terminal").fill("WRONG-CODEX")
        await page.get_by_role("button", name="Sign in").click()
        assert await page.get_by_role("alert").text_content() == "That code is not good, or was used."
        await page.get_by_label("Code from the terminal").fill(await gateway.house.identity.sign_in_code())
        await page.get_by_role("button", name="Sign in").click()
        assert await page.get_by_role("heading").text_content() == "Allow Claude Code?"
        await _picture(page, "consent")
        await page.get_by_role("button", name="Allow").click()
        answer = await asyncio.wait_for(told, 10)
        token = (await program.redeem(answer["code"], verifier)).json()
        assert answer["iss"] == gateway.base
        assert (await gateway.as_(token["access_token"]).post("tools/list")).status_code == 200
        assert [text for text in problems if "Content Security Policy" in text] == []


async def test_a_person_signs_in_with_a_password_and_declines(start: Any) -> None:
    async with start() as gateway, waiting_program() as (callback, told), scriptless_page() as page:
        await gateway.house.identity.users.put("default", "alice", "correct horse", ["mcp:list"])
        program = await OAuthTestClient.register(gateway.base, callback)
        await page.goto(program.authorization_url(pkce_pair()[1]))
        await page.get_by_label("Name").fill("alice")
        await page.get_by_label("Password").fill("correct horse")
        await page.get_by_role("button", name="Sign in").last.click()
        await page.get_by_role("button", name="Deny").click()
        answer = await asyncio.wait_for(told, 10)
        assert answer["error"] == "access_denied"


async def test_the_page_cannot_be_framed_by_another_site(start: Any) -> None:
    async with start() as gateway, scriptless_page() as page:
        program = await OAuthTestClient.register(gateway.base)
        html = f"<iframe name=inner src='{program.authorization_url(pkce_pair()[1]).replace('&', '&amp;')}'></iframe>"
        await page.set_content(html)
        frame = page.frame("inner")
        assert frame is not None
        assert "Sign in" not in await frame.content()
