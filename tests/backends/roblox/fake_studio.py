"""A Studio in Python: it speaks the relay's wire and answers as a test says. The real plugin has tests of its own."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

Json = dict[str, Any]
Answer = Callable[[Json], Awaitable[Json | None]]
"""A request -> what to answer (without ids), or None to stay silent."""

CAPABILITIES = ["typed-values.v2", "instance-id", "idempotency-key"]


async def agreeable(request: Json) -> Json | None:
    return {"success": True, "payload": {"operation": request["operation"], **request["payload"]}}


class Peer:
    """`async with Peer(base, key) as studio:` is connected once `await studio.ready()` returns."""

    def __init__(self, base: str, key: str, name: str = "Studio", answer: Answer = agreeable, **headers: str) -> None:
        self.answer = answer
        self.name = name
        self.session = ""
        self.seen: list[Json] = []
        self.arrived = asyncio.Event()
        self.opened = 0
        self._greeted = asyncio.Event()
        self._key = key
        self._http = httpx.AsyncClient(base_url=base, headers=headers or {"x-gox-auth": key}, timeout=60, verify=False)
        self._task: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._loop())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.vanish()

    async def ready(self) -> Self:
        await self._greeted.wait()
        return self

    async def vanish(self) -> None:
        """As a Studio that is killed: its connections break."""
        for task in (self._task, *self._answering):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._http.aclose()

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self._http.post(f"/v1/bridge/session{path}", json=body)

    async def send(self, answer: Json) -> int:
        return (await self.post(f"/{self.session}/write", {"line": json.dumps(answer)})).status_code

    async def _open(self) -> None:
        response = await self.post("", {"clientName": self.name})
        assert response.status_code == 200, response.text
        self.session = response.json()["sessionId"]
        self.opened += 1

    async def _loop(self) -> None:
        await self._open()
        while True:
            response = await self._http.get(f"/v1/bridge/session/{self.session}/read", params={"timeout_ms": 10_000})
            if response.status_code == 404:
                await self._open()
            elif response.status_code == 200:
                self._hear(json.loads(response.json()["line"]))

    def _hear(self, request: Json) -> None:
        self.seen.append(request)
        self.arrived.set()
        task = asyncio.create_task(self._reply(request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, request: Json) -> None:
        match request["operation"]:
            case "bridge.auth":
                # As the plugin does: the token must be its own.
                good = request["payload"]["token"] == self._key
                answer: Json | None = {"success": good, "payload": {"authenticated": good, "sessionId": self.session}}
            case "bridge.hello":
                answer = {"success": True, "payload": {"protocolVersion": "1.1", "capabilities": CAPABILITIES}}
            case _:
                answer = await self.answer(request)
        if answer is not None:
            await self.send({"requestId": request["requestId"], "correlationId": request["correlationId"], **answer})
        if request["operation"] == "bridge.hello":
            self._greeted.set()

    @property
    def asked(self) -> list[Json]:
        """What it was asked beside the handshake."""
        return [each for each in self.seen if each["operation"] not in ("bridge.auth", "bridge.hello")]
