"""Debian's Chromium, driven by Playwright."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page, async_playwright

from tests.prerequisites import skip_or_fail

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]


@asynccontextmanager
async def browser_context(**context: Any) -> AsyncIterator[BrowserContext]:
    """Open a new browser context. Skips the test if Chromium is not installed."""
    if not CHROMIUM.exists():
        skip_or_fail("Chromium is not installed (apt-get install chromium)")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        try:
            yield await chromium.new_context(**context)
        finally:
            await chromium.close()


@asynccontextmanager
async def scriptless_page() -> AsyncIterator[Page]:
    """Open a page with JavaScript disabled."""
    async with browser_context(java_script_enabled=False, viewport={"width": 560, "height": 640}) as context:
        yield await context.new_page()
