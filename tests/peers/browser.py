"""Debian's Chromium, driven as a person would."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page, async_playwright

from tests.missing import missing

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
async def browsing(**context: Any) -> AsyncIterator[BrowserContext]:
    """A browser with nothing in it yet. Skips the test where there is no Chromium."""
    if not CHROMIUM.exists():
        missing("Chromium is not installed (apt-get install chromium)")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        try:
            yield await chromium.new_context(**context)
        finally:
            await chromium.close()


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A page in which no script runs."""
    async with browsing(java_script_enabled=False, viewport={"width": 560, "height": 640}) as context:
        yield await context.new_page()
