"""`python -m tests.isolation.far_server PORT`: a remote server with tools that answer well, late, much, or never."""

import asyncio
import json
import sys
from typing import Any

import uvicorn
from starlette.types import Send

from tests.peers.raw_server import RawServer, RpcError

Json = dict[str, Any]
TOOLS = ("echo", "slow", "big", "stream", "fail", "invalid")
MEGABYTE = 1024 * 1024


def text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}], "resultType": "complete"}


async def call(params: Json, headers: Json) -> Json:
    match params["name"]:
        case "slow":
            await asyncio.sleep(3600)
        case "big":
            return text("x" * (7 * MEGABYTE))
        case "fail":
            raise RpcError(-32000, "It failed.")
    return text("pong")


class FarServer(RawServer):
    """Streams without end for the tool `stream`, and answers `invalid` with bytes that are no JSON."""

    async def _answer(self, message: Json, headers: Json, send: Send) -> None:
        self.received.clear()
        name = (message.get("params") or {}).get("name")
        if message.get("method") == "tools/call" and name in ("stream", "invalid"):
            kind = b"text/event-stream" if name == "stream" else b"application/json"
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            if name == "stream":
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 1000},
                }
                line = f"event: message\ndata: {json.dumps(note)}\n\n".encode()
                while True:
                    await send({"type": "http.response.body", "body": line * 10, "more_body": True})
                    await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": b"{" * 1000})
            return
        await super()._answer(message, headers, send)


def main() -> None:
    schema = {"type": "object"}
    tools = [{"name": name, "description": "Does it.", "inputSchema": schema} for name in TOOLS]
    server = FarServer(tools=tools, answers={"tools/call": call})
    uvicorn.run(server, host="127.0.0.1", port=int(sys.argv[1]), log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
