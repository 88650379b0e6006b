"""The built site in a real browser: accessible in both schemes, searchable, navigable."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from backends.launch.gates import hugo, screenshots
from backends.launch.gates.context import GateContext
from backends.launch.workers.context import WorkerContext
from tests.backends.launch.worker_fixtures import run_workers
from tests.peers import npm
from tests.peers.browser import CHROMIUM, browser_context

FRONT = "/products.aspose.org/3d/en/python/"
SCENE = "/reference.aspose.org/3d/en/python/aspose-3d/scene/"
PAGES = ("/", FRONT, "/docs.aspose.org/3d/en/python/getting-started/", SCENE, "/kb.aspose.org/3d/en/python/")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> WorkerContext:
    context = run_workers(tmp_path_factory.mktemp("theme"), options={"chromium": str(CHROMIUM)})
    assert not list(hugo.check_build(GateContext(context)))
    return context


@pytest.fixture
def site(built: WorkerContext) -> Iterator[str]:
    folder = str(built.folder / "work" / "public")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def _violations(page: Page, axe: str) -> list[str]:
    await page.evaluate(axe)
    found = await page.evaluate("axe.run()")
    return [f"{page.url} {each['id']}: {node['html'][:150]}" for each in found["violations"] for node in each["nodes"]]


async def test_pages_are_accessible_and_make_no_foreign_request(site: str) -> None:
    axe = (npm.install_package(npm.AXE) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    for scheme in ("light", "dark"):
        async with browser_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme) as context:
            page = await context.new_page()
            requested: list[str] = []
            page.on("request", lambda request, seen=requested: seen.append(request.url))
            for path in PAGES:
                await page.goto(site + path)
                assert await _violations(page, axe) == [], scheme
            assert [url for url in requested if not url.startswith(site)] == []


async def test_reader_searches_navigates_and_copies(site: str) -> None:
    async with browser_context(viewport={"width": 1280, "height": 900}) as context:
        await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
        page = await context.new_page()
        await page.goto(site + FRONT)
        await page.get_by_label("Search").fill("Scene.sc")
        await page.locator("#results a").first.click()
        await expect(page).to_have_url(f"{site}{SCENE}#scenescale")
        await expect(page.get_by_role("navigation", name="Breadcrumbs")).to_contain_text("API reference")
        await page.get_by_role("button", name="Copy").first.click()
        assert await page.evaluate("navigator.clipboard.readText()") == "class Scene"
        await expect(page.locator(".edit")).to_have_attribute("href", _source_of_scene())
        await page.locator(".scheme").click()
        await expect(page.locator("html")).to_have_attribute("data-scheme", "dark")
        await page.set_viewport_size({"width": 380, "height": 800})
        await expect(page.locator("#navigation")).to_be_hidden()
        await page.get_by_role("button", name="Navigation").click()
        await expect(page.locator("#navigation")).to_be_visible()


def _source_of_scene() -> re.Pattern[str]:
    return re.compile(
        r"https://github\.com/aspose-3d/Aspose\.3D-for-Python/blob/[0-9a-f]{40}/src/aspose_3d/__init__\.py#L1"
    )


def test_screenshots_of_front_and_reference_are_png_files(built: WorkerContext) -> None:
    if not CHROMIUM.exists():
        pytest.skip("Chromium is not installed")
    screenshots.take(GateContext(built))
    for name in ("screenshot_front.png", "screenshot_reference.png"):
        assert Path(built.folder / "reports" / name).read_bytes().startswith(b"\x89PNG")
