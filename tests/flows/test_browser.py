"""OAuth sign-in and consent in a real browser with scripts disabled."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from playwright.async_api import Page

from tests.flows.test_company_sign_in import options
from tests.peers.browser import scriptless_page
from tests.peers.company import company_provider
from tests.peers.oauth_flow import OAuthTestClient, pkce_pair

PICTURES = os.environ.get("GATEHOUSE_PICTURES")
"""Folder for screenshots of the pages; none are taken unless it is set."""


@asynccontextmanager
async def callback_server() -> AsyncIterator[tuple[str, "asyncio.Future[dict[str, str]]"]]:
    """Run an OAuth callback endpoint on loopback. Yield its URL and a future with the query it receives."""
    callback_query: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        if path.startswith("/callback?") and not callback_query.done():
            callback_query.set_result(dict(parse_qsl(path.partition("?")[2])))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback", callback_query
    finally:
        server.close()


async def _take_screenshot(page: Page, name: str) -> None:
    if PICTURES:
        await page.locator("main").screenshot(path=Path(PICTURES) / f"{name}.png")


async def test_user_signs_in_with_a_code_and_consents(start: Any) -> None:
    async with start() as gateway, callback_server() as (callback, callback_query), scriptless_page() as page:
        client = await OAuthTestClient.register(gateway.base, callback, client_name="Claude Code")
        verifier, challenge = pkce_pair()
        console_errors: list[str] = []
        page.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
        await page.goto(client.authorization_url(challenge))
        await _take_screenshot(page, "sign-in")
        await page.get_by_label("Code from the terminal").fill("WRONG-CODEX")
        await page.get_by_role("button", name="Sign in").click()
        assert await page.get_by_role("alert").text_content() == "This code is invalid, expired or already used."
        await page.get_by_label("Code from the terminal").fill(await gateway.app.identity.create_sign_in_code())
        await page.get_by_role("button", name="Sign in").click()
        assert await page.get_by_role("heading").text_content() == "Allow Claude Code?"
        await _take_screenshot(page, "consent")
        await page.get_by_role("button", name="Allow").click()
        answer = await asyncio.wait_for(callback_query, 10)
        token = (await client.redeem(answer["code"], verifier)).json()
        assert answer["iss"] == gateway.base
        assert (await gateway.as_(token["access_token"]).post("tools/list")).status_code == 200
        assert [text for text in console_errors if "Content Security Policy" in text] == []


async def test_user_signs_in_with_a_password_and_declines_consent(start: Any) -> None:
    async with start() as gateway, callback_server() as (callback, callback_query), scriptless_page() as page:
        await gateway.app.identity.users.put("default", "alice", "correct horse", ["mcp:list"])
        client = await OAuthTestClient.register(gateway.base, callback)
        await page.goto(client.authorization_url(pkce_pair()[1]))
        await page.get_by_label("Name").fill("alice")
        await page.get_by_label("Password").fill("correct horse")
        await page.get_by_role("button", name="Sign in").last.click()
        await page.get_by_role("button", name="Deny").click()
        answer = await asyncio.wait_for(callback_query, 10)
        assert answer["error"] == "access_denied"


async def test_sign_in_page_cannot_be_framed_by_another_site(start: Any) -> None:
    async with start() as gateway, scriptless_page() as page:
        client = await OAuthTestClient.register(gateway.base)
        html = f"<iframe name=inner src='{client.authorization_url(pkce_pair()[1]).replace('&', '&amp;')}'></iframe>"
        await page.set_content(html)
        frame = page.frame("inner")
        assert frame is not None
        assert "Sign in" not in await frame.content()


async def test_user_consents_and_signs_in_at_the_company(start: Any) -> None:
    with company_provider(strict=True) as provider:
        provider.order(user="alice", groups=["dev"])
        async with (
            start(**options(provider)) as gateway,
            callback_server() as (callback, callback_query),
            scriptless_page() as page,
        ):
            client = await OAuthTestClient.register(gateway.base, callback, client_name="Claude Code")
            verifier, challenge = pkce_pair()
            console_errors: list[str] = []
            page.on("console", lambda message: console_errors.append(message.text) if message.type == "error" else None)
            await page.goto(client.authorization_url(challenge))
            assert await page.get_by_role("heading").text_content() == "Allow Claude Code?"
            await _take_screenshot(page, "provider-consent")
            await page.get_by_role("button", name="Allow and sign in with Company").click()
            await page.wait_for_url(f"{provider.issuer}/**")
            await page.locator("input[name=login]").fill("alice")
            await page.locator("input[name=password]").fill("anything")
            await page.locator("button[type=submit]").click()
            await page.locator("button[type=submit]").click()
            answer = await asyncio.wait_for(callback_query, 10)
            token = (await client.redeem(answer["code"], verifier)).json()
            assert (await gateway.as_(token["access_token"]).post("tools/list")).status_code == 200
            # Another client of the same browser: consent again, without a visit to the provider.
            await page.goto(client.authorization_url(challenge))
            assert await page.get_by_role("button", name="Allow").count() == 1
            await page.get_by_role("button", name="Use another account").click()
            await page.get_by_role("button", name="Allow and sign in with Company").click()
            await page.wait_for_url(f"{provider.issuer}/**")
            assert await page.locator("input[name=login]").count() == 1
            assert [text for text in console_errors if "Content Security Policy" in text] == []


async def test_user_without_access_reads_whom_to_ask(start: Any) -> None:
    with company_provider() as provider:
        provider.order(user="eve", groups=["visitors"])
        async with start(**options(provider)) as gateway, scriptless_page() as page:
            client = await OAuthTestClient.register(gateway.base)
            await page.goto(client.authorization_url(pkce_pair()[1]))
            await page.get_by_role("button", name="Allow and sign in with Company").click()
            await page.wait_for_url(f"{provider.issuer}/**")
            await page.locator("input[name=login]").fill("eve")
            await page.locator("input[name=password]").fill("anything")
            await page.locator("button[type=submit]").click()
            await page.locator("button[type=submit]").click()
            await page.wait_for_url(f"{gateway.base}/**")
            assert await page.get_by_role("heading").text_content() == "Access refused"
            assert "Ask it@example.com." in (await page.locator("main").text_content() or "")
            await _take_screenshot(page, "provider-refused")
