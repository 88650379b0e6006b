"""An operator with a real browser: signs in, finds a failed call, sees where its time went and why it was denied."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from gateway.telemetry.trace_store import FILE, find
from tests.peers import npm
from tests.peers.browser import browser_context

Json = dict[str, Any]
BACKENDS = {"core": {"module": "backends.core"}, "plain": {"module": "tests.flows.fixtures.plain"}}
TENANTS = {"default": {}, "guests": {"read_only": True}}
PAGES = ("", "/calls", "/backends", "/tools/core.ping", "/connect", "/why?tenant=default&subject=alice&tool=core.ping")


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm.install_package(npm.AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def faults(page: Page, axe: str, *rules: str) -> list[str]:
    """What would keep somebody from using the page; of these rules, or of all."""
    # Not as a script of the page: its policy lets none in.
    await page.evaluate(f"window.axe || (() => {{ {axe} }})()")
    found: Json = await page.evaluate("rules => axe.run(rules.length ? {runOnly: rules} : {})", list(rules))
    return [
        f"{page.url}: {each['id']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


async def test_an_operator_finds_a_denied_call_sees_its_waterfall_and_why_and_copies_a_line(
    start: Any, axe: str
) -> None:
    async with start(backends=BACKENDS, tenants=TENANTS) as gateway:
        guest = gateway.as_(await gateway.new_key("guests", "gus"))
        await gateway.call("core_ping")
        denied = await guest.call("plain_echo", {"text": "x"}, {"correlationId": "denied-1"})
        assert denied["result"]["isError"]
        id = "denied-1"
        await gateway.house.audit.flush()
        async with asyncio.timeout(20):  # the span is written a moment after the call
            while not find(gateway.house.settings.data_dir / FILE, id):
                await asyncio.sleep(0.02)
        async with browser_context(viewport={"width": 1280, "height": 900}) as context:
            await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.base)
            page = await context.new_page()
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))

            await page.goto(f"{gateway.base}/console")
            await page.get_by_label("Code from the terminal").fill(await gateway.house.identity.sign_in_code() or "")
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()

            # A failed call, by its id.
            await page.get_by_role("link", name="Calls", exact=True).click()
            await page.get_by_label("Correlation or trace id").fill(id)
            await page.get_by_role("button", name="Find").click()
            await expect(page.locator("table.calls tbody tr")).to_have_count(1)
            await page.get_by_role("link", name="plain.echo").click()

            # Its waterfall, and why it was denied.
            await expect(page.get_by_role("heading", name="plain.echo")).to_be_visible()
            row = page.locator("table.waterfall tbody tr")
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text("tools/call plain.echo")
            assert (await row.locator("svg rect").first.bounding_box() or {}).get("width", 0) > 100
            await expect(page.get_by_role("heading", name="Stage by stage")).to_be_visible()
            why = page.locator("#why")
            await expect(why).to_contain_text("This tenant is read-only.")
            await expect(why).to_contain_text("guard.readonly")
            await expect(why).to_contain_text("authorize")
            await why.get_by_role("link", name="Ask for others").click()
            await expect(page.locator("#answer")).to_contain_text("Denied: This tenant is read-only.")
            problems = await faults(page, axe)

            # A line to copy.
            await page.get_by_role("link", name="Connect", exact=True).click()
            await page.get_by_role("button", name="Copy: the line for Claude Code").click()
            await expect(page.get_by_role("status")).to_have_text("Copied.")
            copied = await page.evaluate("navigator.clipboard.readText()")
            assert copied == f"claude mcp add --transport http gatehouse {gateway.url}"

            await _is_live(page, gateway)
            await _is_usable(page, gateway, axe, [*PAGES, f"/calls/{id}"], problems)
            assert problems == []
            assert said == []

            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_role("heading", name="Signed out")).to_be_visible()
            await page.get_by_role("link", name="Sign in again").click()
            await expect(page.get_by_label("Code from the terminal")).to_be_visible()


async def _is_live(page: Page, gateway: Any) -> None:
    """A call that comes while the page is open is on it without a reload, unless it is told to pause."""
    await page.clock.install()
    await page.goto(f"{gateway.base}/console")
    await page.evaluate("window.mark = 1")
    later = await gateway.call("core_ping", {}, {"correlationId": "later-1"})
    assert "result" in later
    await gateway.house.audit.flush()
    await page.clock.fast_forward(6000)
    await expect(page.get_by_text("later-1")).to_be_visible()
    assert await page.evaluate("window.mark") == 1
    live = page.get_by_role("button", name="Live")
    await live.click()
    await expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "false")
    await page.get_by_role("button", name="Paused").click()


async def _is_usable(page: Page, gateway: Any, axe: str, paths: list[str], problems: list[str]) -> None:
    """In light and dark, on a phone and by the keyboard."""
    for path in paths:
        await page.goto(f"{gateway.base}/console{path}")
        problems += await faults(page, axe)
        if path == paths[-1]:  # it has every colour
            await page.emulate_media(color_scheme="dark")
            problems += [f"dark: {each}" for each in await faults(page, axe, "color-contrast")]
        await page.set_viewport_size({"width": 360, "height": 740})
        wide = await page.evaluate("document.documentElement.scrollWidth")
        problems += [f"{path} is {wide} wide"] if wide > 360 else []
        await page.set_viewport_size({"width": 1280, "height": 900})
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()


def test_the_pictures_in_the_documents_are_small() -> None:
    folder = Path(__file__).parents[2] / "docs" / "images"
    pictures = list(folder.glob("console-*.png"))
    assert {"light", "dark", "narrow"} <= {path.stem.rpartition("-")[2] for path in pictures}
    assert [path.name for path in pictures if path.stat().st_size > 150_000] == []
