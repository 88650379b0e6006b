"""Editors that are connected to the gateway: one in Python that answers all, and the real one with our plugin."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import connect

from gateway.edge.bridge_godot import PATH

Json = dict[str, Any]


@dataclass
class Door:
    """Where editors connect to, of one gateway."""

    studio: Any

    @property
    def url(self) -> str:
        return self.studio.gateway.base.replace("http://", "ws://") + PATH

    async def key(self, tenant: str = "default", *scopes: str) -> str:
        return await self.studio.gateway.new_key(tenant=tenant, subject="ed", scopes=scopes or ("bridge:godot",))


@dataclass
class StandIn:
    """An editor as far as the wire goes."""

    heard: list[Json]
    tell: Callable[[str, Json], Coroutine[Any, Any, None]]
    """Says an event, unasked."""


@asynccontextmanager
async def stand_in(door: Door, project: str, tenant: str = "default") -> AsyncIterator[StandIn]:
    """It greets, and answers every request with what it was asked."""
    heard: list[Json] = []
    key = await door.key(tenant)
    url = f"{door.url}?project={quote(project)}"
    async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
        greeted = asyncio.Event()

        async def tell(event: str, data: Json) -> None:
            await socket.send(json.dumps({"event": event, "data": data}))

        async def serve() -> None:
            async for line in socket:
                request = json.loads(line)
                if request["operation"] == "bridge.hello":
                    payload: Any = {"protocolVersion": "1.1", "capabilities": []}
                    greeted.set()
                else:
                    payload = {"summary": "Done.", "asked": request["payload"]}
                if not request["operation"].startswith("bridge."):
                    heard.append(request)
                await tell("noise", {})
                await socket.send(json.dumps({"requestId": request["requestId"], "success": True, "payload": payload}))

        task = asyncio.create_task(serve())
        await asyncio.wait_for(greeted.wait(), 10)
        yield StandIn(heard, tell)
        task.cancel()


@asynccontextmanager
async def real_editor(studio_with: Any, engine: Path) -> AsyncIterator[Any]:
    async with studio_with(godot_path=str(engine), allow_dangerous_ops=True) as studio:
        door = Door(studio)
        await studio.good("godot_sync_addon")
        folder = studio.project / ".godot_mcp"
        folder.mkdir(exist_ok=True)
        (folder / "bridge.cfg").write_text(f'[bridge]\nurl="{door.url}"\ntoken="{await door.key()}"\n')
        await studio.good("launch_editor")
        async with asyncio.timeout(120):
            while await editors(studio) != [str(studio.project)]:
                await asyncio.sleep(0.1)
        yield studio


async def editors(studio: Any) -> list[str]:
    status = await studio.good("godot_workspace_manager", action="status", projectPath=None)
    return [each["name"] for each in status["editors"] if each["state"] == "ready"]
