"""Takes screenshots of the console of a gateway under load: `python docs/make_console_pictures.py [FOLDER [SECONDS]]`.

Terminal pictures are written to docs/pictures. All numbers in the pictures are measured.
"""

import asyncio
import random
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.make_pictures import draw
from tests.conftest import Running, run_gateway
from tests.peers.browser import browser_context
from tests.peers.raw_server import RpcError, raw_server

FOLDER: Final = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("images")
SECONDS: Final = float(sys.argv[2]) if len(sys.argv) > 2 else 62.0
USERS: Final = ("alice", "bob", "carol", "build-agent")
BACKENDS: Final[dict[str, Any]] = {
    "core": {"module": "backends.core"},
    "knowledge": {"module": "backends.knowledge"},
    "workflow": {"module": "backends.workflow"},
    "slow": {"module": "tests.flows.fixtures.slow"},
    "archive": {"url": "http://127.0.0.1:9/mcp", "allow_private": True},
}
SEARCH: Final = {"name": "search", "description": "Search the tracker.", "inputSchema": {"type": "object"}}
VIEWPORTS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True},
}
_rng: Final = random.Random(7)  # noqa: S311 - traffic, not secrets


async def search(params: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    """A tool with random latency and random failures."""
    await asyncio.sleep(_rng.expovariate(20))
    if _rng.random() < 0.2:
        raise RpcError(-32000, "The tracker's index is being rebuilt.")
    return {"content": [{"type": "text", "text": "found"}], "resultType": "complete"}


async def traffic(users: list[Running]) -> None:
    """Make random calls as the agents of several users."""
    while True:
        caller, roll = _rng.choice(users), _rng.random()
        if roll < 0.4:
            await caller.call("knowledge_query", {"topic": "deployment"})
        elif roll < 0.6:
            await caller.call("knowledge_store", {"topic": "deployment", "content": f"Fact {roll}", "confidence": 0.9})
        elif roll < 0.75:
            await caller.call("core_ping")
        elif roll < 0.77:
            await caller.call("core_ping", {"loud": True})
        elif roll < 0.85:
            await caller.call("slow_wait", {"seconds": _rng.expovariate(8)})
        else:
            await caller.call("tracker_search")
        await asyncio.sleep(_rng.expovariate(5))


async def main() -> None:
    tenants = {"default": {}, "guests": {"read_only": True}}
    telemetry = {"traces": {"share": 1.0}}
    async with raw_server(tools=[SEARCH], answers={"tools/call": search}) as raw:
        backends = {**BACKENDS, "tracker": raw.entry()}
        with tempfile.TemporaryDirectory() as folder:
            async with run_gateway(Path(folder), backends=backends, tenants=tenants, telemetry=telemetry) as gateway:
                await gateway.wait_for_tool("tracker_search")
                users = [gateway.as_(await gateway.new_key(subject=name)) for name in USERS]
                visitor = gateway.as_(await gateway.new_key("guests", "visitor"))
                agents = [asyncio.create_task(traffic([*users, visitor])) for _ in range(3)]
                await asyncio.sleep(SECONDS)
                steps = [{"actionId": "core.ping"}, {"actionId": "tracker.search"}, {"actionId": "knowledge.history"}]
                run = await users[0].call(
                    "workflow_run", {"definition": {"id": "nightly", "steps": steps}, "waitMs": 5000}
                )
                denied = await visitor.call("knowledge_store", {"topic": "x", "content": "y", "confidence": 0.5})
                waiting = asyncio.create_task(users[1].call("slow_wait", {"seconds": 55}))
                await asyncio.sleep(1)
                await gateway.app.audit.flush()
                await take_screenshots(gateway, _id(denied), _id(run))
                await draw_terminal_pictures(gateway, Path(folder) / "data", _id(run))
                for task in (waiting, *agents):
                    task.cancel()


def _id(answer: dict[str, Any]) -> str:
    """Return the correlation id of a response, from its error or its result."""
    if "error" in answer:
        return answer["error"]["data"]["correlation_id"]
    return answer["result"]["_meta"]["correlation_id"]


async def take_screenshots(gateway: Running, denied: str, run: str) -> None:
    pages = {
        "overview": "?minutes=1",
        "waterfall": f"/calls/{run}",
        "denied": f"/calls/{denied}",
        "connect": "/connect",
    }
    for name, options in VIEWPORTS.items():
        async with browser_context(**options) as context:
            page = await context.new_page()
            await page.goto(f"{gateway.base}/console")
            await page.get_by_label("Code from the terminal").fill(
                await gateway.app.identity.create_sign_in_code() or ""
            )
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url("**/console")
            for page_name, path in pages.items():
                await page.goto(f"{gateway.base}/console{path}")
                screenshot = await page.screenshot(full_page=name != "narrow", scale="css")
                # The pages have few colours: a palette reduces the file to a third without visible loss.
                picture = Image.open(BytesIO(screenshot)).quantize(128)
                picture.save(FOLDER / f"console-{page_name}-{name}.png", optimize=True)
                if (page_name, name) == ("waterfall", "light"):
                    top, bottom = [await _top(page, heading) for heading in ("Timing", "Time per stage")]
                    picture.crop((20, top - 20, 1260, bottom - 16)).save(FOLDER / "console-trace.png", optimize=True)


async def _top(page: Any, heading: str) -> int:
    """Return the distance of a heading from the top of the page, in pixels."""
    box = await page.get_by_role("heading", name=heading, exact=True).bounding_box()
    assert box is not None
    return round(box["y"])


async def draw_terminal_pictures(gateway: Running, data: Path, run: str) -> None:
    """Draw the output of `gatehouse trace` and `gatehouse top` for the same calls."""
    key, _ = await gateway.app.keys.create("default", "operator", scopes=frozenset({"mcp:admin"}))
    variables = {"GATEHOUSE__DATA_DIR": str(data), "GATEHOUSE_TOKEN": key}
    top = ["top", "--url", gateway.base, "--minutes", "1"]
    await asyncio.to_thread(draw, "trace", f"trace {run}", ["trace", run], 120, **variables)
    await asyncio.to_thread(draw, "top", "top --url https://gatehouse.example.org", top, 120, **variables)


if __name__ == "__main__":
    asyncio.run(main())
