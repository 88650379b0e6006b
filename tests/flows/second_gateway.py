"""A second gateway in a process of its own, on another's data: python -m tests.flows.second SETTINGS"""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvicorn

from gateway.app import Gatehouse
from gateway.runner import config, listen
from gateway.settings import load
from gateway.telemetry.log import LogLines


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


async def main() -> None:
    settings = load(Path(sys.argv[1]), {})
    bound = listen(settings)
    house = await Gatehouse.open(settings, LogLines(sys.stderr), bound.getsockname()[1])
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    await _Server(config(house)).serve(sockets=[bound])


asyncio.run(main())
