"""The plain HTTP routes, built when their first request arrives.

FastAPI, the console and the authorization server take a fifth of the start. A gateway whose clients send API keys to
`/mcp` never needs them.
"""

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from gateway.contract.deferred import Deferred


class DeferredApp(Deferred[Starlette]):
    """ASGI app: passes each request to the app that `build` returned."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self.get())(scope, receive, send)
