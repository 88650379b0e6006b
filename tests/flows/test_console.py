"""An operator uses the console in a real browser: sign-in, search, call page, policy check, live updates."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from gateway.telemetry.trace_store import FILE, find_spans
from tests.peers import npm
from tests.peers.browser import browser_context

Json = dict[str, Any]
BACKENDS = {"core": {"module": "backends.core"}, "plain": {"module": "tests.flows.fixtures.plain"}}
TENANTS = {"default": {}, "guests": {"read_only": True}}
PAGES = ("", "/calls", "/backends", "/tools/core.ping", "/connect", "/why?tenant=default&subject=alice&tool=core.ping")


@pytest.fixture(scope="module")
def axe() -> str:
    return (npm.install_package(npm.AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def accessibility_violations(page: Page, axe: str, *rules: str) -> list[str]:
    """Return the serious accessibility violations of the page, for the given axe rules or for all."""
    # Evaluated, not added as a script element: the content security policy blocks inline scripts.
    await page.evaluate(f"window.axe || (() => {{ {axe} }})()")
    found: Json = await page.evaluate("rules => axe.run(rules.length ? {runOnly: rules} : {})", list(rules))
    return [
        f"{page.url}: {each['id']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


async def test_operator_finds_a_denied_call_and_checks_its_policy_decision(start: Any, axe: str) -> None:
    async with start(backends=BACKENDS, tenants=TENANTS) as gateway:
        guest = gateway.as_(await gateway.new_key("guests", "gus"))
        await gateway.call("core_ping")
        denied = await guest.call("plain_echo", {"text": "x"}, {"correlationId": "denied-1"})
        assert denied["result"]["isError"]
        id = "denied-1"
        await gateway.app.audit.flush()
        async with asyncio.timeout(20):  # a background thread writes the span after the call
            while not find_spans(gateway.app.settings.data_dir / FILE, id):
                await asyncio.sleep(0.02)
        async with browser_context(viewport={"width": 1280, "height": 900}) as context:
            await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.base)
            page = await context.new_page()
            errors: list[str] = []
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))

            await page.goto(f"{gateway.base}/console")
            await page.get_by_label("Code from the terminal").fill(
                await gateway.app.identity.create_sign_in_code() or ""
            )
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("heading", name="Overview")).to_be_visible()

            # Find the denied call by its correlation ID.
            await page.get_by_role("link", name="Calls", exact=True).click()
            await page.get_by_label("Correlation or trace ID").fill(id)
            await page.get_by_role("button", name="Search").click()
            await expect(page.locator("table.calls tbody tr")).to_have_count(1)
            await page.get_by_role("link", name="plain.echo").click()

            # The call page: waterfall and policy decision.
            await expect(page.get_by_role("heading", name="plain.echo")).to_be_visible()
            row = page.locator("table.waterfall tbody tr")
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text("tools/call plain.echo")
            assert (await row.locator("svg rect").first.bounding_box() or {}).get("width", 0) > 100
            await expect(page.get_by_role("heading", name="Time per stage")).to_be_visible()
            outcome = page.locator("#outcome")
            await expect(outcome).to_contain_text("This tenant is read-only.")
            await expect(outcome).to_contain_text("guard.readonly")
            await expect(outcome).to_contain_text("authorize")
            await outcome.get_by_role("link", name="Check another caller").click()
            await expect(page.locator("#decision")).to_contain_text("Denied: This tenant is read-only.")
            problems = await accessibility_violations(page, axe)

            # Copy the command of the Connect page.
            await page.get_by_role("link", name="Connect", exact=True).click()
            await page.get_by_role("button", name="Copy: command for Claude Code").click()
            await expect(page.get_by_role("status")).to_have_text("Copied.")
            copied = await page.evaluate("navigator.clipboard.readText()")
            assert copied == f"claude mcp add --transport http gatehouse {gateway.url}"

            await _check_live_updates(page, gateway)
            await _check_accessibility(page, gateway, axe, [*PAGES, f"/calls/{id}"], problems)
            assert problems == []
            assert errors == []

            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_role("heading", name="Signed out")).to_be_visible()
            await page.get_by_role("link", name="Sign in again").click()
            await expect(page.get_by_label("Code from the terminal")).to_be_visible()


async def _check_live_updates(page: Page, gateway: Any) -> None:
    """A new call appears on the open page without a reload. The button pauses the updates."""
    await page.clock.install()
    await page.goto(f"{gateway.base}/console")
    await page.evaluate("window.mark = 1")
    later = await gateway.call("core_ping", {}, {"correlationId": "later-1"})
    assert "result" in later
    await gateway.app.audit.flush()
    await page.clock.fast_forward(6000)
    await expect(page.get_by_text("later-1")).to_be_visible()
    assert await page.evaluate("window.mark") == 1
    live = page.get_by_role("button", name="Live")
    await live.click()
    await expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "false")
    await page.get_by_role("button", name="Paused").click()


async def _check_accessibility(page: Page, gateway: Any, axe: str, paths: list[str], problems: list[str]) -> None:
    """Check contrast in light and dark mode, the width on a phone, and keyboard focus."""
    for path in paths:
        await page.goto(f"{gateway.base}/console{path}")
        problems += await accessibility_violations(page, axe)
        if path == paths[-1]:  # this page uses every colour
            await page.emulate_media(color_scheme="dark")
            problems += [f"dark: {each}" for each in await accessibility_violations(page, axe, "color-contrast")]
        await page.set_viewport_size({"width": 360, "height": 740})
        wide = await page.evaluate("document.documentElement.scrollWidth")
        problems += [f"{path} is {wide} wide"] if wide > 360 else []
        await page.set_viewport_size({"width": 1280, "height": 900})
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()


def test_console_pictures_in_the_docs_are_smaller_than_150_kilobytes() -> None:
    folder = Path(__file__).parents[2] / "docs" / "images"
    pictures = list(folder.glob("console-*.png"))
    assert {"light", "dark", "narrow"} <= {path.stem.rpartition("-")[2] for path in pictures}
    assert [path.name for path in pictures if path.stat().st_size > 150_000] == []
