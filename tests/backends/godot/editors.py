"""Editors that connect to the gateway: a fake one in Python and the real one with the Gatehouse plugin."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import connect

Json = dict[str, Any]


@dataclass
class BridgeEndpoint:
    """The WebSocket endpoint for editors of one gateway."""

    harness: Any

    @property
    def url(self) -> str:
        return self.harness.gateway.base.replace("http://", "ws://") + "/bridge/godot"

    async def key(self, tenant: str = "default", *scopes: str) -> str:
        return await self.harness.gateway.new_key(tenant=tenant, subject="ed", scopes=scopes or ("bridge:godot",))


@dataclass
class FakeEditor:
    """A fake editor that speaks the bridge protocol. It records requests and can send events."""

    requests: list[Json]
    send_event: Callable[[str, Json], Coroutine[Any, Any, None]]


@asynccontextmanager
async def fake_editor(bridge: BridgeEndpoint, project: str, tenant: str = "default") -> AsyncIterator[FakeEditor]:
    """Connect a fake editor that answers the handshake and echoes the payload of every request."""
    requests: list[Json] = []
    key = await bridge.key(tenant)
    url = f"{bridge.url}?project={quote(project)}"
    async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        hello_received = asyncio.Event()

        async def send_event(event: str, data: Json) -> None:
            await socket.send(json.dumps({"event": event, "data": data}))

        async def serve() -> None:
            async for line in socket:
                request = json.loads(line)
                if request["operation"] == "bridge.hello":
                    payload: Any = {"protocolVersion": "1.1", "capabilities": []}
                    hello_received.set()
                else:
                    payload = {"summary": "Done.", "asked": request["payload"]}
                if not request["operation"].startswith("bridge."):
                    requests.append(request)
                await send_event("noise", {})
                await socket.send(json.dumps({"requestId": request["requestId"], "success": True, "payload": payload}))

        task = asyncio.create_task(serve())
        await asyncio.wait_for(hello_received.wait(), 10)
        yield FakeEditor(requests, send_event)
        task.cancel()


@asynccontextmanager
async def real_editor(open_harness: Any, engine: Path) -> AsyncIterator[Any]:
    async with open_harness(godot_path=str(engine), allow_dangerous_ops=True) as harness:
        bridge = BridgeEndpoint(harness)
        await harness.call_ok("godot_sync_addon")
        data_folder = harness.project / ".godot_mcp"
        data_folder.mkdir(exist_ok=True)
        (data_folder / "bridge.cfg").write_text(f'[bridge]\nurl="{bridge.url}"\ntoken="{await bridge.key()}"\n')
        await harness.call_ok("launch_editor")
        async with asyncio.timeout(120):
            while await connected_editors(harness) != [str(harness.project)]:
                await asyncio.sleep(0.1)
        yield harness


async def connected_editors(harness: Any) -> list[str]:
    status = await harness.call_ok("godot_workspace_manager", action="status", projectPath=None)
    return [each["name"] for each in status["editors"] if each["state"] == "ready"]
