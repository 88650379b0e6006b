"""Takes the pictures of the console, of a gateway that is called for a minute: `python docs/make_console_pictures.py`.

Those of the terminal go to docs/pictures. A folder and a number of seconds may be given. Every number in them was
measured, nothing is written by hand.
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
from tests.peers.browser import browsing
from tests.peers.raw_server import Refusal, raw_server

FOLDER: Final = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("images")
SECONDS: Final = float(sys.argv[2]) if len(sys.argv) > 2 else 62.0
PEOPLE: Final = ("alice", "bob", "carol", "build-agent")
BACKENDS: Final[dict[str, Any]] = {
    "core": {"module": "backends.core"},
    "knowledge": {"module": "backends.knowledge"},
    "workflow": {"module": "backends.workflow"},
    "slow": {"module": "tests.flows.fixtures.slow"},
    "archive": {"url": "http://127.0.0.1:9/mcp", "allow_private": True},
}
SEARCH: Final = {"name": "search", "description": "Search the tracker.", "inputSchema": {"type": "object"}}
LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True},
}
_dice: Final = random.Random(7)  # noqa: S311 - traffic, not secrets


async def search(params: dict[str, Any], headers: dict[str, Any]) -> dict[str, Any]:
    """Takes its time, and sometimes fails."""
    await asyncio.sleep(_dice.expovariate(20))
    if _dice.random() < 0.2:
        raise Refusal(-32000, "The tracker's index is being rebuilt.")
    return {"content": [{"type": "text", "text": "found"}], "resultType": "complete"}


async def traffic(people: list[Running]) -> None:
    """What a few people's agents might do."""
    while True:
        who, chance = _dice.choice(people), _dice.random()
        if chance < 0.4:
            await who.call("knowledge_query", {"topic": "deployment"})
        elif chance < 0.6:
            await who.call("knowledge_store", {"topic": "deployment", "content": f"Fact {chance}", "confidence": 0.9})
        elif chance < 0.75:
            await who.call("core_ping")
        elif chance < 0.77:
            await who.call("core_ping", {"loud": True})
        elif chance < 0.85:
            await who.call("slow_wait", {"seconds": _dice.expovariate(8)})
        else:
            await who.call("tracker_search")
        await asyncio.sleep(_dice.expovariate(5))


async def main() -> None:
    tenants = {"default": {}, "guests": {"read_only": True}}
    telemetry = {"traces": {"share": 1.0}}
    async with raw_server(tools=[SEARCH], answers={"tools/call": search}) as raw:
        backends = {**BACKENDS, "tracker": raw.entry()}
        with tempfile.TemporaryDirectory() as folder:
            async with run_gateway(Path(folder), backends=backends, tenants=tenants, telemetry=telemetry) as gateway:
                await gateway.listed("tracker_search")
                people = [gateway.as_(await gateway.new_key(subject=name)) for name in PEOPLE]
                visitor = gateway.as_(await gateway.new_key("guests", "visitor"))
                agents = [asyncio.create_task(traffic([*people, visitor])) for _ in range(3)]
                await asyncio.sleep(SECONDS)
                steps = [{"actionId": "core.ping"}, {"actionId": "tracker.search"}, {"actionId": "knowledge.history"}]
                run = await people[0].call(
                    "workflow_run", {"definition": {"id": "nightly", "steps": steps}, "waitMs": 5000}
                )
                denied = await visitor.call("knowledge_store", {"topic": "x", "content": "y", "confidence": 0.5})
                waiting = asyncio.create_task(people[1].call("slow_wait", {"seconds": 55}))
                await asyncio.sleep(1)
                await gateway.house.audit.flush()
                await take(gateway, _id(denied), _id(run))
                await in_a_terminal(gateway, Path(folder) / "data", _id(run))
                for task in (waiting, *agents):
                    task.cancel()


def _id(answer: dict[str, Any]) -> str:
    """The correlation id, wherever the answer has it."""
    if "error" in answer:
        return answer["error"]["data"]["correlation_id"]
    return answer["result"]["_meta"]["correlation_id"]


async def take(gateway: Running, denied: str, run: str) -> None:
    pages = {
        "overview": "?minutes=1",
        "waterfall": f"/calls/{run}",
        "denied": f"/calls/{denied}",
        "connect": "/connect",
    }
    for name, options in LOOKS.items():
        async with browsing(**options) as context:
            page = await context.new_page()
            await page.goto(f"{gateway.base}/console")
            await page.get_by_label("Code from the terminal").fill(await gateway.house.identity.sign_in_code() or "")
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url("**/console")
            for shown, path in pages.items():
                await page.goto(f"{gateway.base}/console{path}")
                taken = await page.screenshot(full_page=name != "narrow", scale="css")
                # A page has few colours: a third of the bytes shows the same.
                Image.open(BytesIO(taken)).quantize(128).save(FOLDER / f"console-{shown}-{name}.png", optimize=True)


async def in_a_terminal(gateway: Running, data: Path, run: str) -> None:
    """The same calls, by `gatehouse trace` and `gatehouse top`."""
    key, _ = await gateway.house.keys.create("default", "operator", scopes=frozenset({"mcp:admin"}))
    where = {"GATEHOUSE__DATA_DIR": str(data), "GATEHOUSE_TOKEN": key}
    top = ["top", "--url", gateway.base, "--minutes", "1"]
    await asyncio.to_thread(draw, "trace", f"trace {run}", ["trace", run], 120, **where)
    await asyncio.to_thread(draw, "top", "top --url https://gatehouse.example.org", top, 120, **where)


if __name__ == "__main__":
    asyncio.run(main())
