"""The baseline: a minimal ASGI app that decodes a `tools/call` and echoes its text."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import uvicorn

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = _answer(json.loads(body))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _answer(call: dict[str, Any]) -> bytes:
    content = [{"type": "text", "text": call["params"]["arguments"]["text"]}]
    result = {"content": content, "isError": False, "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}, separators=(",", ":")).encode()


def serve(app: Any, port: int, *, lifespan: Literal["on", "off"] = "off") -> None:
    """Serve with the configuration common to all candidates: one worker, httptools, uvloop, no access log."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    serve(app, int(sys.argv[1]))
