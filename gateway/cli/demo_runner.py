"""Runs the demo of a backend: a temporary gateway on a free port, driven by real MCP calls, with output per step."""

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

from gateway.app import Gateway
from gateway.cli.failure import CommandError
from gateway.cli.mcp_client import McpClient, RpcCallError
from gateway.contract import Json
from gateway.errors import Fault, Kind
from gateway.runner import listen, serve_in_process
from gateway.settings import Settings
from gateway.telemetry.log import LogLines
from gateway.upstream.health import LoadError

_COLUMN: Final = 30


class DemoScreen:
    """Prints lines with the seconds since the start, without markup and without wrapping."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()

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
        return f"{time.monotonic() - self._started:5.1f} s  ", "dim"

    def _line(self, *parts: str | tuple[str, str]) -> None:
        line = Text.assemble(*parts)
        line.rstrip()
        self._console.print(line, soft_wrap=True)


TENANT: Final = "default"


def run_demo(module: str, folder: Path | None, as_json: bool, **options: Any) -> None:
    """Run the demo of a module with the user's options. Raises `CommandError`, or the `Fault` that ended the demo."""
    demo = _load(module)
    with _demo_folder(folder) as demo_folder:
        screen = DemoScreen(Console(highlight=False, file=sys.stderr if as_json else None, quiet=as_json))
        screen.title(demo.TITLE)
        result = asyncio.run(_play(demo, demo_folder, screen, options))
        screen.end(f"Done. The files are in {demo_folder}" if folder else "Done.")
    if as_json:
        print(json.dumps(result, indent=2))


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise CommandError(f"this demo cannot run: {exc}; install Gatehouse with the extra of the backend") from exc


@contextmanager
def _demo_folder(folder: Path | None) -> Generator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="gatehouse-demo-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary).resolve()
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{folder} exists and is not an empty folder; choose another with --folder")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder.resolve()


async def _play(demo: Any, folder: Path, screen: DemoScreen, options: Json) -> Json:
    entries = await demo.prepare(folder, **options)
    async with _gateway(folder, entries) as (gateway, base):
        screen.step("temporary gateway", f"{base}/mcp")
        key, _ = await gateway.keys.create(TENANT, "demo")
        with McpClient(f"{base}/mcp", key) as client:
            files = gateway.settings.files_dir / TENANT
            return await demo.play(DemoGateway(folder, files, base, gateway, client, screen))


@asynccontextmanager
async def _gateway(folder: Path, entries: Json) -> AsyncGenerator[tuple[Gateway, str]]:
    settings = Settings.model_validate(
        {"server": {"port": 0}, "data_dir": folder / "data", "log": {"level": "error"}, "backends": entries}
    )
    async with AsyncExitStack() as stack:
        try:
            gateway = await Gateway.open(settings, LogLines(sys.stderr))
        except LoadError as exc:
            raise CommandError(f"this demo cannot run: {exc}") from exc
        stack.push_async_callback(gateway.close)
        bound = stack.enter_context(listen(settings))
        await stack.enter_async_context(serve_in_process(gateway, bound))
        yield gateway, f"http://127.0.0.1:{bound.getsockname()[1]}"


@dataclass(frozen=True, slots=True)
class DemoGateway:
    """Implements the `Demo` protocol of `backends/demo.py`."""

    folder: Path
    files: Path
    base: str
    gateway: Gateway
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
            raise Fault(Kind.INTERNAL, f"{tool} was expected to fail, but returned: {_text(result)}")
        content: Json = result.get("structuredContent") or {}
        return content.get("error") or result

    async def key(self, *scopes: str) -> str:
        key, _ = await self.gateway.keys.create(TENANT, "demo", scopes=scopes)
        return key

    def step(self, text: str, detail: str = "") -> None:
        self.screen.step(text, detail)

    def note(self, text: str, detail: str = "") -> None:
        self.screen.note(text, detail)

    async def _result(self, tool: str, arguments: Json) -> Json:
        # The client blocks, so it runs in a thread: the gateway runs on this event loop.
        return await asyncio.to_thread(self.client.call, tool, arguments)


def _text(result: Json) -> str:
    blocks: list[Json] = result.get("content") or []
    return " ".join(block.get("text", "") for block in blocks)
