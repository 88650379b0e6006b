"""The SDK's server with the same echo tool and its fastest settings: JSON responses, no implicit tools/list."""

import sys

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from bench.echo_module import server
from bench.echo_server import serve


class SdkApp:
    """The SDK's session manager as an ASGI application."""

    def __init__(self) -> None:
        self._manager = StreamableHTTPSessionManager(server, json_response=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self._manager.run():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


if __name__ == "__main__":
    serve(SdkApp(), int(sys.argv[1]), lifespan="on")
