"""A small MCP server on the standard library alone, which starts at once: `server.py ERA [PORT]`; with none, stdio.

Tools: `pid`; `echo`; `hold` leaves a file `path` and never answers; `stream` reports progress and logs `mark` before it
answers with it; `big` answers with `size` characters.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Say = Callable[[Json], Awaitable[None]]

ERA = sys.argv[1]
TOOLS = ("pid", "echo", "hold", "stream", "big")


async def call(name: str, given: Json, meta: Json, say: Say) -> str:
    match name:
        case "hold":
            Path(given["path"]).touch()
            await asyncio.Event().wait()
        case "stream":
            for step in (1, 2):
                params: Json = {"progressToken": meta.get("progressToken"), "progress": step, "message": given["mark"]}
                await say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                await asyncio.sleep(0)
                logged = {"level": "info", "data": given["mark"]}
                await say({"jsonrpc": "2.0", "method": "notifications/message", "params": logged})
                await asyncio.sleep(0.001 * step)
            return given["mark"]
        case "echo":
            return given["text"]
        case "big":
            return "x" * given["size"]
    return str(os.getpid())


async def answer(message: Json, say: Say) -> Json:
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
            text = await call(params["name"], params.get("arguments") or {}, params.get("_meta") or {}, say)
            result["content"] = [{"type": "text", "text": text}]
        case "logging/setLevel" if ERA == "handshake":
            pass
        case _:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


# ---- over HTTP ----


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
    said = False

    async def say(notification: Json) -> None:
        nonlocal said
        if not said:
            head = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            writer.write(b"HTTP/1.1 200 Ok\r\n" + head)
            said = True
        data = b"data: %b\n\n" % json.dumps(notification).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()

    reply = await answer(message, say)
    if said:
        await say(reply)
        writer.write(b"0\r\n\r\n")
        return
    data = json.dumps(reply).encode()
    session = b"mcp-session-id: s%d\r\n" % os.getpid() if message["method"] == "initialize" else b""
    kind = b"content-type: application/json\r\n"
    writer.write(b"HTTP/1.1 200 Ok\r\n%b%bcontent-length: %d\r\n\r\n%b" % (kind, session, len(data), data))
    await writer.drain()


# ---- over stdio ----


async def serve_stdio() -> None:
    loop, running = asyncio.get_running_loop(), set()
    reader = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def say(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def one(message: Json) -> None:
        await say(await answer(message, say))

    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message and "method" in message:
            task = loop.create_task(one(message))
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
