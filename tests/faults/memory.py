"""A thousand results of a megabyte each, eight at a time: what they leave in the gateway's memory."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.faults.client import Client, connections
from tests.faults.kills import SERVER, UNLIMITED
from tests.flows.killable import program
from tests.flows.process import serving, until, write_settings

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Growth:
    """Bytes over what the gateway took before, at its highest and in the end."""

    highest: int
    last: int


async def big_results(folder: Path, era: str, calls: int = 1000, concurrency: int = 8) -> Growth:
    with program("-I", "-S", SERVER, era) as server:
        await server.listens()
        entry = {"url": f"http://127.0.0.1:{server.port}/mcp", "allow_private": True}
        write_settings(folder, backends={"far": entry}, limits=UNLIMITED, log={"format": "json", "level": "warning"})
        with serving(folder) as served:
            until(lambda: "far_big" in served.tool_names(), "its tools")
            async with connections(concurrency) as http:
                client = Client(http, served.url, served.key, era)
                await client.open()
                for _ in range(50):
                    await client.call("far_pid")
                before, highest, left = served.rss(), 0, calls

                async def some() -> None:
                    nonlocal highest, left
                    while left > 0:
                        left -= 1
                        said = await client.call("far_big", {"size": MEGABYTE})
                        assert len(said.text) == MEGABYTE
                        highest = max(highest, served.rss())

                await asyncio.gather(*(some() for _ in range(concurrency)))
                return Growth(highest - before, served.rss() - before)
