"""A fake Studio in Python: speaks the bridge protocol and answers as the test configures.

The real plugin is tested in `test_plugin.py`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx

Json = dict[str, Any]
Answer = Callable[[Json], Awaitable[Json | None]]
"""Maps a request to its answer (without ids), or to None for no answer."""

CAPABILITIES = ["typed-values.v2", "instance-id", "idempotency-key"]


async def echo_request(request: Json) -> Json | None:
    return {"success": True, "payload": {"operation": request["operation"], **request["payload"]}}


class FakeStudio:
    """`async with FakeStudio(base, key) as studio:`; connected once `await studio.wait_until_connected()` returns."""

    def __init__(
        self, base: str, key: str, name: str = "Studio", answer: Answer = echo_request, **headers: str
    ) -> None:
        self.answer = answer
        self.name = name
        self.session = ""
        self.received: list[Json] = []
        self.arrived = asyncio.Event()
        self.opened = 0
        self._connected = asyncio.Event()
        self._key = key
        self._http = httpx.AsyncClient(base_url=base, headers=headers or {"x-gox-auth": key}, timeout=60, verify=False)
        self._task: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._loop())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.kill()

    async def wait_until_connected(self) -> Self:
        await self._connected.wait()
        return self

    async def kill(self) -> None:
        """Close all connections, as when the Studio process is killed."""
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
                self._receive(json.loads(response.json()["line"]))

    def _receive(self, request: Json) -> None:
        self.received.append(request)
        self.arrived.set()
        task = asyncio.create_task(self._reply(request))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, request: Json) -> None:
        match request["operation"]:
            case "bridge.auth":
                # Like the plugin, accept only its own token.
                valid = request["payload"]["token"] == self._key
                answer: Json | None = {"success": valid, "payload": {"authenticated": valid, "sessionId": self.session}}
            case "bridge.hello":
                answer = {"success": True, "payload": {"protocolVersion": "1.1", "capabilities": CAPABILITIES}}
            case _:
                answer = await self.answer(request)
        if answer is not None:
            await self.send({"requestId": request["requestId"], "correlationId": request["correlationId"], **answer})
        if request["operation"] == "bridge.hello":
            self._connected.set()

    @property
    def requests(self) -> list[Json]:
        """The received requests, without the handshake."""
        return [each for each in self.received if each["operation"] not in ("bridge.auth", "bridge.hello")]
