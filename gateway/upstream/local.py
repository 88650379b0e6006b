"""The `Backend` implementation for modules in this process.

`LocalBackend` calls the handlers of the module's SDK server directly, with a real SDK context. The SDK's own dispatcher
would cost sixty times as much per call and drop unknown fields.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
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
    ModuleRoute,
    RefusedCall,
    ResourceInterest,
    Route,
)
from gateway.errors import Fault, ForeignError
from gateway.upstream.health import UpstreamHealth
from gateway.upstream.host import CURRENT_CALL
from gateway.upstream.sdk_session import SdkSession, StandaloneChannel
from gateway.upstream.url_elicitation import input_required_result, resume_params

log = logging.getLogger("gatehouse.upstream")

# The gateway records its own spans, and seals request state bound to the caller.
_REPLACED_MIDDLEWARE = (OpenTelemetryMiddleware, RequestStateBoundary)
_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MAX_PAGES = 100
CLOSE_SECONDS = 3600.0


class LocalBackend:
    """A module in this process. It is trusted: its annotations may lower the effect of its tools."""

    trusted = True

    def __init__(
        self,
        namespace: str,
        server: "Server[Any] | MCPServer[Any]",
        manifest: Manifest,
        refusals: Sequence[Callable[[RefusedCall], None]] = (),
        routes: Sequence[ModuleRoute] = (),
    ) -> None:
        self.namespace = namespace
        self.manifest = manifest
        self.routes = routes
        self._refusals = refusals
        self._server = _lowlevel(server)
        self._middleware = _middleware(self._server)
        self._lifespan = LifespanTask(self._server)
        self._listeners: list[Callable[[ListChange], None]] = []
        self._standalone = StandaloneChannel(self._notify_listeners)
        self._subscribed: _Subscribed = {}
        self._subscription_lock = asyncio.Lock()
        self._listen_task: asyncio.Task[None] | None = None
        self._active = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._since = time.time()

    def health(self) -> UpstreamHealth:
        eras = ("handshake", "modern")
        return UpstreamHealth(state="up", transport="module", eras=eras, in_flight=self._active, since=self._since)

    async def open(self) -> None:
        """Enter the server's lifespan and start to listen for changes. Call once."""
        await self._lifespan.start()
        self._middleware = _middleware(self._server)
        self._listen()

    async def close(self) -> None:
        """Wait for the calls in progress, at most `CLOSE_SECONDS`, then leave the server's lifespan."""
        await self._stop_listening()
        self._closing = True
        if not self._active:
            self._idle.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        await self._lifespan.stop()

    # ---- lists ----

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

    # ---- calls ----

    async def send(self, call: Call) -> Json:
        entry = self._server.get_request_handler(call.method)
        if entry is None:
            raise ForeignError(-32601, "Method not found", call.method)
        params, route = call.params, call.route
        if "requestState" in params:
            params = resume_params(params)
        deadline = time.monotonic()  # same clock as `loop.time()`, without looking up the running loop
        caller = call.caller
        if route is not None:
            deadline += route.timeout
            if route.endpoint is not None:
                caller = replace(caller, resource=route.endpoint)
            if (key := _NAME_PARAMS.get(call.method)) is not None:
                params = {**params, key: route.name}
        token = CURRENT_CALL.set(CurrentCall(caller, call.id, deadline, call.meta, call.record.position))
        self._active += 1
        try:
            return await self._run(entry, call, call.method, params)
        except ForeignError as error:
            if not call.client.modern:
                raise
            return input_required_result(error)
        finally:
            CURRENT_CALL.reset(token)
            self._active -= 1
            if self._closing and not self._active:
                self._idle.set()

    def task_session(self, call: Call) -> str:
        """A task of a module lives in this worker."""
        return "worker"

    def report_refusal(self, call: Call, route: Route, fault: Fault) -> None:
        """Notify the module's refusal listeners of a tool call that did not reach it."""
        if self._refusals and call.method == "tools/call":
            current = CurrentCall(call.caller, call.id, time.monotonic(), call.meta)
            refusal = RefusedCall(current, route.name, call.arguments, fault)
            for listener in self._refusals:
                listener(refusal)

    async def _run(self, entry: HandlerEntry[Any], call: Call | None, method: str, params: Json) -> Json:
        try:
            # As `model_validate`, without its Python overhead.
            typed = entry.params_type.__pydantic_validator__.validate_python(params, by_name=False)
        except ValidationError as exc:
            raise ForeignError(-32602, "Invalid request parameters") from exc
        meta = params.get("_meta")
        ctx: ServerRequestContext[Any, Any] = ServerRequestContext(
            session=SdkSession(call, self._standalone, meta),
            lifespan_context=self._lifespan.state,
            protocol_version=call.client.version if call else MODERN,
            method=method,
            params=params,
            request_id=(call.request_id if call else None) or 0,
            meta=meta,
            close_sse_stream=call.wire.end_response if call else None,
        )
        try:
            if self._middleware:
                return as_json(await _with_middleware(self._middleware, entry, typed)(ctx))
            return as_json(await entry.handler(ctx, typed))
        except (MCPError, Exception) as exc:
            if (fault := find_fault(exc)) is not None:
                raise fault from exc
            if isinstance(exc, MCPError):
                raise ForeignError(exc.error.code, exc.error.message, exc.error.data) from exc
            raise

    # ---- changes ----

    def on_change(self, listener: Callable[[ListChange], None]) -> None:
        self._listeners.append(listener)

    def _notify_listeners(self, change: ListChange) -> None:
        for listener in self._listeners:
            listener(change)

    async def set_subscriptions(self, interests: Sequence[ResourceInterest]) -> None:
        async with self._subscription_lock:
            by_tenant = self.manifest.subscribe_by_tenant
            await self._apply_subscriptions(
                {
                    (each.caller.tenant if by_tenant else None, uri): each.caller if by_tenant else None
                    for each in interests
                    for uri in each.uris
                }
            )

    async def _apply_subscriptions(self, wanted: "_Subscribed") -> None:
        before, self._subscribed = self._subscribed, wanted
        added, removed = wanted.keys() - before.keys(), before.keys() - wanted.keys()
        for method, keys, callers in (
            ("resources/subscribe", added, wanted),
            ("resources/unsubscribe", removed, before),
        ):
            if (entry := self._server.get_request_handler(method)) is not None:
                for key in keys:
                    with _as_caller(callers[key]):
                        await self._run(entry, None, method, {"uri": key[1]})
        if (added or removed) and self._listen_task is not None:
            await self._stop_listening()
            self._listen()

    def _listen(self) -> None:
        entry = self._server.get_request_handler("subscriptions/listen")
        if entry is not None:
            self._listen_task = asyncio.create_task(self._run_listen(entry), name=f"listen:{self.namespace}")

    async def _stop_listening(self) -> None:
        if self._listen_task is not None:
            self._listen_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._listen_task
            self._listen_task = None

    async def _run_listen(self, entry: HandlerEntry[Any]) -> None:
        wanted: Json = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        wanted["resourceSubscriptions"] = sorted({uri for _, uri in self._subscribed})
        try:
            await self._run(entry, None, "subscriptions/listen", {"notifications": wanted})
        except (Fault, ForeignError) as exc:
            log.warning("upstream %s: subscriptions/listen failed; changes are not noticed: %s", self.namespace, exc)


class LifespanTask:
    """Runs a server's lifespan in its own task: a task group inside it must be entered and left by the same task.

    `state` is the value that the lifespan yields; valid from `start` to `stop`.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self.state: Any = None

    async def start(self) -> None:
        """Enter the lifespan. Raises what the lifespan raises."""
        self._task = asyncio.create_task(self._run(), name=f"life:{self._server.name}")
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        async with self._server.lifespan(self._server) as self.state:
            self._ready.set()
            await self._stopping.wait()


_Subscribed = dict[tuple[str | None, str], Caller | None]
"""Subscribed URIs, with the tenant and one of its subscribers if the module subscribes by tenant."""


@contextmanager
def _as_caller(caller: Caller | None) -> Generator[None]:
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
    inner = server._lowlevel_server  # pyright: ignore[reportPrivateUsage]  # no public API
    inner.add_request_handler("tools/call", CallToolRequestParams, partial(_call_tool, server))
    return inner


async def _call_tool(
    server: MCPServer[Any], ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
) -> HandlerResult:
    """As the SDK's own handler, but a `Fault` among the causes is not converted to text."""
    bus = server._subscriptions  # pyright: ignore[reportPrivateUsage]  # without it a tool cannot announce changes
    context = Context(request_context=ctx, mcp_server=server, input_params=params, subscriptions=bus)
    try:
        return cast("HandlerResult", await server.call_tool(params.name, params.arguments or {}, context))
    except ToolError as exc:
        # An unexpected exception is a failure of the backend; an error raised on purpose is the tool's result.
        if isinstance(exc, UnexpectedToolError) or find_fault(exc) is not None:
            raise
        return CallToolResult(content=[TextContent(type="text", text=str(exc))], is_error=True)


def _middleware(server: Server[Any]) -> list[ServerMiddleware[Any]]:
    return [each for each in server.middleware if not isinstance(each, _REPLACED_MIDDLEWARE)]


def _with_middleware(middleware: list[ServerMiddleware[Any]], entry: HandlerEntry[Any], typed: BaseModel) -> CallNext:
    async def call_handler(ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
        return await entry.handler(ctx, typed)

    handler: CallNext = call_handler
    for each in reversed(middleware):
        handler = partial(_apply, each, handler)
    return handler


async def _apply(
    middleware: ServerMiddleware[Any], call_next: CallNext, ctx: ServerRequestContext[Any, Any]
) -> HandlerResult:
    return await middleware(ctx, call_next)


def as_json(result: Any) -> Json:
    """Convert a handler's result to the JSON object that is sent."""
    if isinstance(result, dict):
        return cast("Json", result)
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    if result is None:
        return {}
    raise TypeError(f"A handler returned {type(result).__name__} instead of a result.")


def find_fault(exc: BaseException | None) -> Fault | None:
    """Return the first `Fault` among the exception and its causes, if any."""
    for _ in range(8):
        if exc is None or isinstance(exc, Fault):
            return exc
        # The SDK raises some of its errors without `from`.
        exc = exc.__cause__ or exc.__context__
    return None
