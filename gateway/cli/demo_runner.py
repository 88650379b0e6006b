"""How a demo looks on a terminal: what is done, and below it what came of it, one line each.

Plays a demo: an embedded gateway on a free port with a folder of its own, driven by real MCP calls.
"""

import asyncio
import importlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from gateway.app import Gatehouse
from gateway.cli.failure import CommandError
from gateway.cli.mcp_client import McpClient, RpcCallError
from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.runner import beside, listen
from gateway.settings import Settings
from gateway.telemetry.log import LogLines
from gateway.upstream.health import LoadError

_COLUMN: Final = 30


class DemoScreen:
    """Lines with the seconds since the start; nothing in them is markup, and none is broken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        self._line((text, "bold"))
        self._line()

    def step(self, text: str, detail: str = "") -> None:
        self._line(self._clock(), ("▸ ", "cyan"), (f"{text:<{_COLUMN}} ", "bold"), (detail, "cyan"))

    def note(self, text: str, detail: str = "") -> None:
        self._line(self._clock(), f"    {text:<{_COLUMN - 2}} ", (detail, "dim"))

    def end(self, text: str) -> None:
        self._line()
        self._line((text, "green"))

    def _clock(self) -> tuple[str, str]:
        return f"{time.monotonic() - self._began:5.1f} s  ", "dim"

    def _line(self, *parts: str | tuple[str, str]) -> None:
        line = Text.assemble(*parts)
        line.rstrip()
        self._console.print(line, soft_wrap=True)


TENANT: Final = "default"


def show(module: str, folder: Path | None, as_json: bool, **given: Any) -> None:
    """Play the demo of that module, with what the user gave it. Raises `Failure`, or the `Fault` that ended it."""
    demo = _load(module)
    with _room(folder) as room:
        screen = DemoScreen(Console(highlight=False, file=sys.stderr if as_json else None, quiet=as_json))
        screen.title(demo.TITLE)
        facts = asyncio.run(_play(demo, room, screen, given))
        screen.end(f"Done. It is all in {room}" if folder else "Done.")
    if as_json:
        print(json.dumps(facts, indent=2))


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        # A backend may need an extra that is not installed.
        raise CommandError(f"this demo cannot be shown: {exc}; install Gatehouse with the backend's extra") from exc


@contextmanager
def _room(folder: Path | None) -> Generator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="gatehouse-demo-", ignore_cleanup_errors=True) as room:
            yield Path(room).resolve()
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{folder} exists and is not an empty folder; give --folder another")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder.resolve()


async def _play(demo: Any, room: Path, screen: DemoScreen, given: Json) -> Json:
    entries = await demo.prepare(room, **given)
    async with _gateway(room, entries) as (house, base):
        screen.step("a gateway of its own", f"{base}/mcp")
        key, _ = await house.keys.create(TENANT, "demo")
        with McpClient(f"{base}/mcp", key) as client:
            return await demo.play(DemoGateway(room, house.settings.files_dir / TENANT, base, house, client, screen))


@asynccontextmanager
async def _gateway(room: Path, entries: Json) -> AsyncGenerator[tuple[Gatehouse, str]]:
    settings = Settings.model_validate(
        {"server": {"port": 0}, "data_dir": room / "data", "log": {"level": "error"}, "backends": entries}
    )
    async with AsyncExitStack() as stack:
        try:
            house = await Gatehouse.open(settings, LogLines(sys.stderr))
        except LoadError as exc:
            raise CommandError(f"this demo cannot be shown: {exc}") from exc
        stack.push_async_callback(house.close)
        bound = stack.enter_context(listen(settings))
        await stack.enter_async_context(beside(house, bound))
        yield house, f"http://127.0.0.1:{bound.getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class DemoGateway:
    """What the demo is handed; `backends/demo.py` says what it may rely on."""

    folder: Path
    files: Path
    base: str
    house: Gatehouse
    client: McpClient
    screen: DemoScreen

    async def call(self, tool: str, arguments: Json) -> Json:
        try:
            result = await self._result(tool, arguments)
        except RpcCallError as exc:
            raise Fault(Kind.INTERNAL, f"{tool} failed: {exc}") from exc
        if result.get("isError"):
            raise Fault(Kind.INTERNAL, f"{tool} failed: {_text(result)}")
        return result.get("structuredContent") or result

    async def refusal(self, tool: str, arguments: Json) -> Json:
        try:
            result = await self._result(tool, arguments)
        except RpcCallError as exc:
            return exc.error.get("data") or exc.error
        if not result.get("isError"):
            raise Fault(Kind.INTERNAL, f"{tool} should have been refused, but answered: {_text(result)}")
        told: Json = result.get("structuredContent") or {}
        return told.get("error") or result

    async def key(self, *scopes: str) -> str:
        key, _ = await self.house.keys.create(TENANT, "demo", scopes=scopes)
        return key

    def step(self, text: str, detail: str = "") -> None:
        self.screen.step(text, detail)

    def note(self, text: str, detail: str = "") -> None:
        self.screen.note(text, detail)

    async def _result(self, tool: str, arguments: Json) -> Json:
        # The client waits in a thread: the gateway that answers it lives on this loop.
        return await asyncio.to_thread(self.client.call, tool, arguments)


def _text(result: Json) -> str:
    blocks: list[Json] = result.get("content") or []
    return " ".join(block.get("text", "") for block in blocks)
