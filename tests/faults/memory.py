"""Memory growth of the gateway after a thousand results of a megabyte each, eight at a time."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import Client, connections
from tests.faults.server_kills import SERVER, UNLIMITED
from tests.flows.killable_server import killable_server
from tests.flows.process import serving, until, write_settings

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Growth:
    """Memory growth in bytes: the highest value and the last one."""

    highest: int
    last: int


async def big_results(folder: Path, era: str, calls: int = 1000, concurrency: int = 8) -> Growth:
    with killable_server("-I", "-S", SERVER, era) as server:
        await server.wait_until_listening()
        entry = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        write_settings(folder, backends={"far": entry}, limits=UNLIMITED, log={"format": "json", "level": "warning"})
        with serving(folder) as served:
            until(lambda: "far_big" in served.tool_names(), "its tools")
            async with connections(concurrency) as http:
                client = Client(http, served.url, served.key, era)
                await client.open()
                for _ in range(50):
                    await client.call("far_pid")
                before, highest, remaining = served.rss(), 0, calls

                async def worker() -> None:
                    nonlocal highest, remaining
                    while remaining > 0:
                        remaining -= 1
                        result = await client.call("far_big", {"size": MEGABYTE})
                        assert len(result.text) == MEGABYTE
                        highest = max(highest, served.rss())

                await asyncio.gather(*(worker() for _ in range(concurrency)))
                return Growth(highest - before, served.rss() - before)
