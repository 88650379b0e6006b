"""Serves the GET streams of the handshake era: change notifications, and the resumption of interrupted streams.

`LegacyEra` opens and ends them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import (
    HANDSHAKE_TASKS_SINCE,
    Caller,
    ClientProfile,
    Json,
    ListChange,
    McpHttpRequest,
    ResponseWriter,
)
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.event_streams import RETENTION_SECONDS, EventStream, EventStreams, ExpiryQueue
from gateway.protocol.responses import RpcError, error_bytes, json_headers, notification_bytes
from gateway.protocol.sessions import McpSession, SessionStore
from gateway.protocol.subscriptions import (
    LIST_CHANGED,
    RESOURCE_UPDATED,
    TASK_STATUS,
    Listener,
    Subscriptions,
    Target,
    update_params,
)
from gateway.protocol.wire import KeepAlive
from gateway.protocol.worker_proxy import WorkerProxy

log = logging.getLogger("gatehouse.protocol")

_PRIMING_SINCE: Final = "2025-11-25"


class GetStreams:
    """The GET streams of this worker, at most one per session, so that no message is sent twice."""

    def __init__(
        self,
        catalogue: Catalogue,
        subscriptions: Subscriptions,
        streams: EventStreams,
        store: SessionStore,
        keep_alive: KeepAlive,
        worker_proxy: WorkerProxy,
    ) -> None:
        self._worker_proxy = worker_proxy
        worker_proxy.serve("stream", self._resume_for_peer)
        self._catalogue = catalogue
        self._subscriptions = subscriptions
        self._streams = streams
        self._store = store
        self._keep_alive = keep_alive
        self._pumps: dict[str, tuple[Listener, EventStream, asyncio.Task[None], Callable[[], Awaitable[None]]]] = {}
        self._detached = ExpiryQueue(RETENTION_SECONDS, self._end_if_detached)
        self._without_stream = ExpiryQueue(RETENTION_SECONDS, self._drop_if_streamless)

    async def open(
        self, request: McpHttpRequest, writer: ResponseWriter, session: McpSession, correlation_id: str
    ) -> None:
        """Serve one GET request until the client disconnects or the stream ends."""
        last_event_id = request.headers.get("last-event-id")
        if last_event_id is None:
            stream = await self._start_stream(request, session, correlation_id)
            await stream.attach(writer, prime=session.client.version >= _PRIMING_SINCE)
            await self._wait_detached(session.digest, stream)
            return
        try:
            worker, _, _ = last_event_id.partition(".")
            if worker == self._worker_proxy.worker:
                await self._resume(session.digest, last_event_id, writer)
            else:
                payload: Json = {"session": session.digest, "last": last_event_id}
                await self._worker_proxy.fetch(worker, "stream", payload, writer)
        except Fault:
            error = RpcError(-32001, "The stream no longer exists. Make the request again.")
            await writer.send(404, json_headers(correlation_id), error_bytes(None, error))

    async def _resume(self, digest: str, last_event_id: str, writer: ResponseWriter) -> None:
        found = self._streams.find(last_event_id, digest)
        if found is None:
            raise Fault(Kind.NOT_FOUND, "There is no such stream.")
        stream, after = found
        await stream.attach(writer, after=after)
        await self._wait_detached(digest, stream)

    async def _resume_for_peer(self, payload: Json, writer: ResponseWriter) -> None:
        await self._resume(payload["session"], payload["last"], writer)

    async def _wait_detached(self, digest: str, stream: EventStream) -> None:
        self._keep_alive.add(stream)
        try:
            await stream.wait_detached()
        finally:
            self._keep_alive.discard(stream)
            self._detached.add((digest, stream.id))

    async def sync_subscriptions(self, caller: Caller, client: ClientProfile, endpoint: str, digest: str) -> None:
        """Subscribe at the backends to the session's resources; without a GET stream, only for a limited time."""
        if digest not in self._pumps:
            self._without_stream.add(digest)
        targets = frozenset(self._targets(caller, endpoint, digest))
        await self._subscriptions.set_interest(("session", digest), caller, client, targets)

    async def _sync_accepted(self, caller: Caller, client: ClientProfile, endpoint: str, digest: str) -> None:
        """Subscribe to those of the session's resources that the backends accept, so that the stream can open."""
        try:
            await self.sync_subscriptions(caller, client, endpoint, digest)
        except (Fault, ForeignError) as exc:
            log.info("GET stream: a backend refused subscriptions of the session; the others are kept: %s", exc)
            accepted: frozenset[Target] = frozenset()
            for target in self._targets(caller, endpoint, digest):
                with suppress(Fault, ForeignError):
                    await self._subscriptions.set_interest(("session", digest), caller, client, accepted | {target})
                    accepted |= {target}

    async def remove_session(self, digest: str) -> None:
        """End the stream of an ended session and drop its upstream subscriptions."""
        self.end_stream(digest)
        self._subscriptions.drop_interest(("session", digest))

    def end_stream(self, digest: str) -> None:
        """End the session's GET stream if it is in this worker."""
        pump = self._pumps.pop(digest, None)
        if pump is not None:
            pump[0].end()

    async def refresh_subscriptions(self, digest: str) -> None:
        """Reload the subscriptions of a session that has its GET stream here; another worker changed them."""
        pump = self._pumps.get(digest)
        if pump is not None:
            await self._store.load()
            await pump[3]()

    async def _start_stream(self, request: McpHttpRequest, session: McpSession, correlation_id: str) -> EventStream:
        self.end_stream(session.digest)
        stream = self._streams.create(session.digest, correlation_id, request.caller.principal)

        def map_change(namespace: str, change: ListChange) -> tuple[str, Json] | None:
            return self._notification_for(request, session.client, session.digest, namespace, change)

        listener = self._subscriptions.attach(map_change)
        task = asyncio.create_task(self._pump(session.digest, listener, stream), name="standing")
        sync = partial(self._sync_accepted, request.caller, session.client, request.path, session.digest)
        self._pumps[session.digest] = (listener, stream, task, sync)
        await sync()
        return stream

    async def _pump(self, digest: str, listener: Listener, stream: EventStream) -> None:
        try:
            while (notification := await listener.next()) is not None:
                await stream.send(notification_bytes(*notification))
        finally:
            self._subscriptions.detach(listener)
            if (current := self._pumps.get(digest)) is not None and current[1] is stream:
                del self._pumps[digest]
            self._drop_if_streamless(digest)
            await stream.end()
            if self._store.is_ended(digest):
                self._streams.remove(stream)
            else:
                self._streams.schedule_removal(stream)

    def _notification_for(
        self, request: McpHttpRequest, client: ClientProfile, digest: str, namespace: str, change: ListChange
    ) -> tuple[str, Json] | None:
        view = self._catalogue.view(request.caller, request.path)
        if view is None or namespace not in view.namespaces or not request.caller.may_receive(change.owner):
            return None
        if change.kind == "task":
            if client.version != HANDSHAKE_TASKS_SINCE:
                return None
            return TASK_STATUS, (change.details or {}).get("handshake", {})
        if change.kind == "resource":
            uri = self._targets(request.caller, request.path, digest).get((namespace, change.uri))
            return (RESOURCE_UPDATED, update_params(uri, change)) if uri is not None else None
        return LIST_CHANGED[change.kind], {}

    def _targets(self, caller: Caller, endpoint: str, digest: str) -> dict[Target, str]:
        view = self._catalogue.view(caller, endpoint)
        routes = ((uri, view.find_resource(uri)) for uri in self._store.subscriptions(digest)) if view else ()
        return {(route.namespace, route.name): uri for uri, route in routes if route is not None}

    def _drop_if_streamless(self, digest: str) -> None:
        """Drop the upstream subscriptions of a session without a GET stream; its next stream restores them."""
        if digest not in self._pumps:
            self._subscriptions.drop_interest(("session", digest))

    def _end_if_detached(self, detached: tuple[str, str]) -> None:
        digest, id = detached
        pump = self._pumps.get(digest)
        if pump is not None and pump[1].id == id and pump[1].is_detached:
            self.end_stream(digest)
