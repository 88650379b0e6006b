"""Adapts the wire of a call to the SDK's `ServerSession`, which a module's handler gets as `ctx.session`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp.types import ClientCapabilities, Implementation, InitializeRequestParams
from pydantic import ValidationError

from gateway.contract import MODERN, Call, ClientProfile, Json, ListChange
from gateway.errors import TABLE, Fault, ForeignError
from gateway.upstream.host import CURRENT_CALL

_LIST_CHANGES: Final[Mapping[str, ListChange]] = {
    "notifications/tools/list_changed": ListChange("tools"),
    "notifications/prompts/list_changed": ListChange("prompts"),
    "notifications/resources/list_changed": ListChange("resources"),
}
_UPDATED: Final = "notifications/resources/updated"

OnChange = Callable[[ListChange], None]


class StandaloneChannel:
    """The channel outside of any request: passes changes to `on_change` and drops all else."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if method in _LIST_CHANGES:
            self._on_change(_LIST_CHANGES[method])
        elif method == _UPDATED and params is not None:
            details = {key: value for key, value in params.items() if key != "uri"}
            self._on_change(ListChange("resource", str(params["uri"]), _current_tenant(), details or None))


class CallChannel:
    """The back channel to the client of one call. Without a call it cannot send requests."""

    message_metadata: MessageMetadata = None

    def __init__(self, call: Call | None, standalone: StandaloneChannel) -> None:
        self._call = call
        self._standalone = standalone

    @property
    def transport(self) -> TransportContext:
        return TransportContext(kind="gatehouse", can_send_request=self.can_send_request)

    @property
    def request_id(self) -> str | int:
        request_id = self._call.request_id if self._call else None
        return 0 if request_id is None else request_id

    @property
    def can_send_request(self) -> bool:
        return self._call is not None

    @property
    def cancel_requested(self) -> anyio.Event:
        # Never set: a handler is cancelled through its task.
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._call is None:
            raise NoBackChannelError(method)
        try:
            answers = await self._call.wire.ask({"it": {"method": method, "params": dict(params or {})}})
        except ForeignError as exc:
            raise MCPError(exc.code, exc.message, exc.data) from exc
        except Fault as exc:
            # The handler may catch it like any client error; otherwise `find_fault` finds the fault among the causes.
            raise MCPError(TABLE[exc.kind].handshake, exc.message) from exc
        return answers["it"]

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._call is None or method in _LIST_CHANGES or method == _UPDATED:
            await self._standalone.notify(method, params, opts)
        else:
            await self._call.wire.notify(method, dict(params or {}))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = self._call.meta.get("progressToken") if self._call else None
        if token is None:
            return
        params: Json = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self.notify("notifications/progress", params)


class SdkSession(ServerSession):
    """The SDK's session of one request, initialized on first use: most handlers never use it."""

    def __init__(self, call: Call | None, standalone: StandaloneChannel, meta: Any) -> None:
        self._init_args = (call, standalone, meta)

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that the SDK's constructor sets, before it has run.
        if name == "_init_args" or "_initialized" in self.__dict__:
            raise AttributeError(name)
        call, standalone, meta = self._init_args
        self._initialized = True
        # The SDK sends some requests over the connection; here that is the call's channel too.
        channel = CallChannel(call, standalone)
        connection = Connection(channel, protocol_version=call.client.version if call else MODERN)
        connection.initialized.set()
        if call is not None:
            _set_client(connection, call.client)
        super().__init__(channel, connection, request_meta=meta)
        return getattr(self, name)


def _current_tenant() -> str | None:
    """The tenant of the call in progress, if any."""
    current = CURRENT_CALL.get(None)
    return current.caller.tenant if current else None


def _set_client(connection: Connection, client: ClientProfile) -> None:
    """Set the client's description on the connection; a malformed one is ignored and never fails a call."""
    try:
        capabilities = ClientCapabilities.model_validate(client.capabilities, by_name=False)
    except ValidationError:
        return
    connection.client_capabilities = capabilities
    if client.info is None:
        return
    try:
        info = Implementation.model_validate(client.info, by_name=False)
    except ValidationError:
        return
    connection.client_params = InitializeRequestParams.model_construct(
        protocol_version=client.version, capabilities=capabilities, client_info=info
    )
