"""A second gateway process on the data of another gateway: `python -m tests.flows.second_gateway SETTINGS`."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvicorn

from gateway.app import Gateway
from gateway.runner import build_config, listen
from gateway.settings import load
from gateway.telemetry.log import LogLines


class _Server(uvicorn.Server):
    def capture_signals(self) -> Any:
        return nullcontext()


async def main() -> None:
    settings = load(Path(sys.argv[1]), {})
    bound = listen(settings)
    app = await Gateway.open(settings, LogLines(sys.stderr), bound.getsockname()[1])
    print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
    await _Server(build_config(app)).serve(sockets=[bound])


asyncio.run(main())
