"""A server's lifespan, entered and left in one task of its own: a task group inside it allows no other way.

In-process backends: a module's SDK server, its handlers called directly with a real SDK context.

The SDK's own dispatcher would cost sixty times as much per call and drop fields that it does not know.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, cast

from mcp import MCPError
from mcp.server import Server
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel.server import HandlerEntry
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.request_state import RequestStateBoundary
from mcp.types import CallToolRequestParams, CallToolResult, TextContent
from pydantic import BaseModel, ValidationError

from gateway.contract import (
    MODERN,
    BackendLists,
    Call,
    Caller,
    CurrentCall,
    IsolatedLists,
    Json,
    ListChange,
    Manifest,
    RefusedCall,
    ResourceInterest,
    Route,
)
from gateway.errors import Fault, ForeignError
from gateway.upstream.health import UpstreamHealth
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.sdk_session import SdkSession, StandaloneChannel
from gateway.upstream.url_elicitation import answered, asking


class LifespanTask:
    """`state` is what the lifespan yielded, from `begin` to `end`."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self.state: Any = None

    async def begin(self) -> None:
        """Raises whatever the lifespan raises on its way in."""
        self._task = asyncio.create_task(self._live(), name=f"life:{self._server.name}")
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        self._over.set()
        if self._task is not None:
            await self._task

    async def _live(self) -> None:
        async with self._server.lifespan(self._server) as self.state:
            self._ready.set()
            await self._over.wait()


log = logging.getLogger("gatehouse.upstream")

# The gateway has its own spans, and seals request state itself, bound to the caller.
_OURS = (OpenTelemetryMiddleware, RequestStateBoundary)

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

_MAX_PAGES = 100

CLOSE_SECONDS = 3600.0


class LocalBackend:
    """A module's server behind the one small Protocol of every backend."""

    trusted = True

    def __init__(
        self,
        namespace: str,
        server: "Server[Any] | MCPServer[Any]",
        manifest: Manifest,
        refusals: Sequence[Callable[[RefusedCall], None]] = (),
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest
        self._refusals = refusals
        self._server = _lowlevel(server)
        self._middleware = _middleware(self._server)
        self._life = LifespanTask(self._server)
        self._listeners: list[Callable[[ListChange], None]] = []
        self._standalone = StandaloneChannel(self._changed)
        self._watched: _Watched = {}
        self._changing = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._active = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._since = time.time()

    def health(self) -> UpstreamHealth:
        eras = ("handshake", "modern")
        return UpstreamHealth(state="up", transport="module", eras=eras, in_flight=self._active, since=self._since)

    async def open(self) -> None:
        """Enter the server's lifespan, once, and begin to hear of its changes."""
        await self._life.begin()
        self._middleware = _middleware(self._server)
        self._listen()

    async def close(self) -> None:
        """Once its last call is done, or after a while: a backend that is taken out drops no call."""
        await self._stop_listening()
        self._closing = True
        if not self._active:
            self._idle.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        await self._life.end()

    # ---- what it lists ----

    isolated_lists: IsolatedLists | None = None

    async def fetch_lists(self, caller: Caller | None) -> BackendLists:
        server = self._server
        capabilities = server.get_capabilities(protocol_version=MODERN).model_dump(by_alias=True, exclude_none=True)
        if "resources" in capabilities:
            subscribable = any(map(server.get_request_handler, ("resources/subscribe", "subscriptions/listen")))
            capabilities["resources"]["subscribe"] = subscribable
        return BackendLists(
            tools=await self._list_all("tools/list", "tools"),
            resources=await self._list_all("resources/list", "resources"),
            templates=await self._list_all("resources/templates/list", "resourceTemplates"),
            prompts=await self._list_all("prompts/list", "prompts"),
            capabilities=capabilities,
            instructions=server.instructions or "",
            info=server.server_info.model_dump(by_alias=True, mode="json", exclude_none=True),
        )

    async def _list_all(self, method: str, key: str) -> tuple[Json, ...]:
        entry = self._server.get_request_handler(method)
        items: list[Json] = []
        params: Json = {}
        for _ in range(_MAX_PAGES if entry else 0):
            page = await self._run(cast("HandlerEntry[Any]", entry), None, method, params)
            items.extend(page.get(key, ()))
            if (cursor := page.get("nextCursor")) is None:
                break
            params = {"cursor": cursor}
        return tuple(items)

    # ---- a call ----

    async def send(self, call: Call) -> Json:
        entry = self._server.get_request_handler(call.method)
        if entry is None:
            raise ForeignError(-32601, "Method not found", call.method)
        params, route = call.params, call.route
        if "requestState" in params:
            params = answered(params)
        until = time.monotonic()  # the loop's clock too, which before Python 3.12 takes a system call to get at
        if route is not None:
            until += route.timeout
            if (key := _NAMED.get(call.method)) is not None:
                params = {**params, key: route.name}
        token = CURRENT_CALL.set(CurrentCall(call.caller, call.id, until, call.meta, call.record.position))
        self._active += 1
        try:
            return await self._run(entry, call, call.method, params)
        except ForeignError as error:
            if not call.client.modern:
                raise
            return asking(error)
        finally:
            CURRENT_CALL.reset(token)
            self._active -= 1
            if self._closing and not self._active:
                self._idle.set()

    def refused(self, call: Call, route: Route, fault: Fault) -> None:
        """Tell the module of a call that did not reach it, if it wants to know."""
        if self._refusals and call.method == "tools/call":
            here = CurrentCall(call.caller, call.id, time.monotonic(), call.meta)
            refusal = RefusedCall(here, route.name, call.arguments, fault)
            for told in self._refusals:
                told(refusal)

    async def _run(self, entry: HandlerEntry[Any], call: Call | None, method: str, params: Json) -> Json:
        try:
            # What `model_validate` calls, without the Python around it.
            typed = entry.params_type.__pydantic_validator__.validate_python(params, by_name=False)
        except ValidationError as exc:
            raise ForeignError(-32602, "Invalid request parameters") from exc
        meta = params.get("_meta")
        ctx: ServerRequestContext[Any, Any] = ServerRequestContext(
            session=SdkSession(call, self._standalone, meta),
            lifespan_context=self._life.state,
            protocol_version=call.client.version if call else MODERN,
            method=method,
            params=params,
            request_id=(call.request_id if call else None) or 0,
            meta=meta,
            close_sse_stream=call.wire.hang_up if call else None,
        )
        try:
            if self._middleware:
                return as_json(await _through(self._middleware, entry, typed)(ctx))
            return as_json(await entry.handler(ctx, typed))
        except (MCPError, Exception) as exc:
            if (fault := fault_in(exc)) is not None:
                raise fault from exc
            if isinstance(exc, MCPError):
                raise ForeignError(exc.error.code, exc.error.message, exc.error.data) from exc
            raise

    # ---- what changes ----

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def _changed(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    async def set_subscriptions(self, wants: Sequence[ResourceInterest]) -> None:
        async with self._changing:
            apart = self.manifest.subscribe_by_tenant
            await self._watch(
                {
                    (each.caller.tenant if apart else None, uri): each.caller if apart else None
                    for each in wants
                    for uri in each.uris
                }
            )

    async def _watch(self, wanted: "_Watched") -> None:
        before, self._watched = self._watched, wanted
        added, gone = wanted.keys() - before.keys(), before.keys() - wanted.keys()
        for method, changed, known in (("resources/subscribe", added, wanted), ("resources/unsubscribe", gone, before)):
            if (entry := self._server.get_request_handler(method)) is not None:
                for each in changed:
                    with _on_behalf_of(known[each]):
                        await self._run(entry, None, method, {"uri": each[1]})
        if (added or gone) and self._listening is not None:
            await self._stop_listening()
            self._listen()

    def _listen(self) -> None:
        entry = self._server.get_request_handler("subscriptions/listen")
        if entry is not None:
            self._listening = asyncio.create_task(self._hear(entry), name=f"listen:{self.namespace}")

    async def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None

    async def _hear(self, entry: HandlerEntry[Any]) -> None:
        wanted: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        wanted["resourceSubscriptions"] = sorted({uri for _, uri in self._watched})
        try:
            await self._run(entry, None, "subscriptions/listen", {"notifications": wanted})
        except (Fault, ForeignError) as exc:
            log.warning("%s: its changes cannot be heard: %s", self.namespace, exc)


_Watched = dict[tuple[str | None, str], Caller | None]

"""Each URI that is wanted, by tenant where those are told apart, with one who wants it."""


@contextmanager
def _on_behalf_of(caller: Caller | None) -> Generator[None]:
    if caller is None:
        yield
        return
    token = CURRENT_CALL.set(CurrentCall(caller, secrets.token_hex(8), time.monotonic(), {}))
    try:
        yield
    finally:
        CURRENT_CALL.reset(token)


def _lowlevel(server: "Server[Any] | MCPServer[Any]") -> Server[Any]:
    if not isinstance(server, MCPServer):
        return server
    inner = server._lowlevel_server  # pyright: ignore[reportPrivateUsage]  # the SDK has no public way
    inner.add_request_handler("tools/call", CallToolRequestParams, partial(_call_tool, server))
    return inner


async def _call_tool(
    server: MCPServer[Any], ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
) -> HandlerResult:
    """As the SDK's own handler, but a `Fault` among the causes is not flattened to text."""
    bus = server._subscriptions  # pyright: ignore[reportPrivateUsage]  # without it a tool cannot announce changes
    context = Context(request_context=ctx, mcp_server=server, input_params=params, subscriptions=bus)
    try:
        return cast("HandlerResult", await server.call_tool(params.name, params.arguments or {}, context))
    except ToolError as exc:
        # A crash is a failure like any other backend's; what the tool says on purpose is its answer.
        if isinstance(exc, UnexpectedToolError) or fault_in(exc) is not None:
            raise
        return CallToolResult(content=[TextContent(type="text", text=str(exc))], is_error=True)


def _middleware(server: Server[Any]) -> list[ServerMiddleware[Any]]:
    return [each for each in server.middleware if not isinstance(each, _OURS)]


def _through(middleware: list[ServerMiddleware[Any]], entry: HandlerEntry[Any], typed: BaseModel) -> CallNext:
    async def last(ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
        return await entry.handler(ctx, typed)

    handler: CallNext = last
    for each in reversed(middleware):
        handler = partial(_apply, each, handler)
    return handler


async def _apply(
    middleware: ServerMiddleware[Any], call_next: CallNext, ctx: ServerRequestContext[Any, Any]
) -> HandlerResult:
    return await middleware(ctx, call_next)


def as_json(result: Any) -> Json:
    """A handler's result as the plain object that goes on the wire."""
    if isinstance(result, dict):
        return cast("Json", result)
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    if result is None:
        return {}
    raise TypeError(f"a handler returned {type(result).__name__}, not a result")


def fault_in(exc: BaseException | None) -> Fault | None:
    """The `Fault` among an exception's causes, if there is one."""
    for _ in range(8):
        if exc is None or isinstance(exc, Fault):
            return exc
        # The SDK raises some of its own errors without naming the cause.
        exc = exc.__cause__ or exc.__context__
    return None
