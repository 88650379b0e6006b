"""A small MCP server without dependencies, for a fast start: `server.py ERA [PORT]`; without a port it uses stdio.

Tools: `pid`; `echo`; `hold` creates the file `path` and never returns; `stream` sends progress and log messages with
`mark` and returns it; `big` returns `size` characters.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Send = Callable[[Json], Awaitable[None]]

ERA = sys.argv[1]
TOOLS = ("pid", "echo", "hold", "stream", "big")


async def call(name: str, arguments: Json, meta: Json, send: Send) -> str:
    match name:
        case "hold":
            Path(arguments["path"]).touch()
            await asyncio.Event().wait()
        case "stream":
            for step in (1, 2):
                params: Json = {
                    "progressToken": meta.get("progressToken"),
                    "progress": step,
                    "message": arguments["mark"],
                }
                await send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                await asyncio.sleep(0)
                logged = {"level": "info", "data": arguments["mark"]}
                await send({"jsonrpc": "2.0", "method": "notifications/message", "params": logged})
                await asyncio.sleep(0.001 * step)
            return arguments["mark"]
        case "echo":
            return arguments["text"]
        case "big":
            return "x" * arguments["size"]
    return str(os.getpid())


async def answer(message: Json, send: Send) -> Json:
    method, params = message["method"], message.get("params") or {}
    result: Json = {"resultType": "complete"} if ERA == "modern" else {}
    match method:
        case "initialize" if ERA == "handshake":
            result |= {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "f", "version": "1"}}
            result["capabilities"] = {"tools": {}, "logging": {}}
        case "server/discover" if ERA == "modern":
            result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "logging": {}}}
        case "tools/list":
            result["tools"] = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        case "tools/call":
            text = await call(params["name"], params.get("arguments") or {}, params.get("_meta") or {}, send)
            result["content"] = [{"type": "text", "text": text}]
        case "logging/setLevel" if ERA == "handshake":
            pass
        case _:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


# ---- HTTP ----


async def serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(size)
            if not head.startswith(b"post"):
                writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
                continue
            await answer_http(json.loads(body), writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def answer_http(message: Json, writer: asyncio.StreamWriter) -> None:
    if "id" not in message or "method" not in message:
        writer.write(b"HTTP/1.1 202 Ok\r\ncontent-length: 0\r\n\r\n")
        return
    streaming = False

    async def send(notification: Json) -> None:
        nonlocal streaming
        if not streaming:
            head = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(b"HTTP/1.1 200 Ok\r\n" + head)
            streaming = True
        data = b"data: %b\n\n" % json.dumps(notification).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()

    reply = await answer(message, send)
    if streaming:
        await send(reply)
        writer.write(b"0\r\n\r\n")
        return
    data = json.dumps(reply).encode()
    session = b"mcp-session-id: s%d\r\n" % os.getpid() if message["method"] == "initialize" else b""
    kind = b"content-type: application/json\r\n"
    writer.write(b"HTTP/1.1 200 Ok\r\n%b%bcontent-length: %d\r\n\r\n%b" % (kind, session, len(data), data))
    await writer.drain()


# ---- stdio ----


async def serve_stdio() -> None:
    loop, running = asyncio.get_running_loop(), set()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def send(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def handle(message: Json) -> None:
        await send(await answer(message, send))

    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message and "method" in message:
            task = loop.create_task(handle(message))
            running.add(task)
            task.add_done_callback(running.discard)


async def main() -> None:
    if len(sys.argv) > 2:
        server = await asyncio.start_server(serve_http, "127.0.0.1", int(sys.argv[2]), backlog=1024)
        await server.serve_forever()
    else:
        await serve_stdio()


if __name__ == "__main__":
    asyncio.run(main())
