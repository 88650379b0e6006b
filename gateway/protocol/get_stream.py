"""The GET streams of the handshake era: changes as they happen, or the rest of a stream that was left."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Caller, ClientProfile, Json, ListChange, McpHttpRequest, ResponseWriter
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.event_streams import KEPT_SECONDS, EventStream, EventStreams, ExpiryQueue
from gateway.protocol.responses import RpcError, error_bytes, headers, notification_bytes
from gateway.protocol.sessions import McpSession, SessionStore
from gateway.protocol.subscriptions import LIST_CHANGED, UPDATED, Listener, Subscriptions, Target, updated
from gateway.protocol.wire import KeepAlive
from gateway.protocol.worker_proxy import WorkerProxy

log = logging.getLogger("gatehouse.standing")

_PRIMED_SINCE: Final = "2025-11-25"


class GetStreams:
    """At most one standing stream a session: a message is never sent twice."""

    def __init__(
        self,
        catalogue: Catalogue,
        hub: Subscriptions,
        streams: EventStreams,
        rows: SessionStore,
        pulse: KeepAlive,
        relay: WorkerProxy,
    ) -> None:
        self._relay = relay
        relay.serve("stream", self._resume_for_another)
        self._catalogue = catalogue
        self._hub = hub
        self._streams = streams
        self._rows = rows
        self._pulse = pulse
        self._pumps: dict[str, tuple[Listener, EventStream, asyncio.Task[None], Callable[[], Awaitable[None]]]] = {}
        self._left = ExpiryQueue(KEPT_SECONDS, self._stop_if_alone)
        self._deaf = ExpiryQueue(KEPT_SECONDS, self._drop_if_deaf)

    async def open(
        self, inbound: McpHttpRequest, outlet: ResponseWriter, session: McpSession, correlation_id: str
    ) -> None:
        """Serve one GET until the client leaves or the stream is over."""
        last = inbound.headers.get("last-event-id")
        if last is None:
            stream = await self._begin(inbound, session, correlation_id)
            await stream.attach(outlet, prime=session.client.version >= _PRIMED_SINCE)
            await self._attend(session.digest, stream)
            return
        try:
            worker, _, _ = last.partition(".")
            if worker == self._relay.worker:
                await self._resume(session.digest, last, outlet)
            else:
                about: Json = {"session": session.digest, "last": last}
                await self._relay.fetch(worker, "stream", about, outlet)
        except Fault:
            error = RpcError(-32001, "That stream is gone; make the request again.")
            await outlet.answer(404, headers(correlation_id), error_bytes(None, error))

    async def _resume(self, digest: str, last: str, outlet: ResponseWriter) -> None:
        found = self._streams.find(last, digest)
        if found is None:
            raise Fault(Kind.NOT_FOUND, "There is no such stream.")
        stream, after = found
        await stream.attach(outlet, after=after)
        await self._attend(digest, stream)

    async def _resume_for_another(self, about: Json, outlet: ResponseWriter) -> None:
        await self._resume(about["session"], about["last"], outlet)

    async def _attend(self, digest: str, stream: EventStream) -> None:
        self._pulse.add(stream)
        try:
            await stream.attended()
        finally:
            self._pulse.discard(stream)
            self._left.add((digest, stream.id))

    async def listen_for(self, caller: Caller, client: ClientProfile, endpoint: str, digest: str) -> None:
        """Have the backends report what this session is subscribed to, as long as it has a stream to be told by."""
        if digest not in self._pumps:
            self._deaf.add(digest)
        await self._hub.want(("session", digest), caller, client, frozenset(self._targets(caller, endpoint, digest)))

    async def _listen_again(self, caller: Caller, client: ClientProfile, endpoint: str, digest: str) -> None:
        """For a stream that stands or is about to: what a backend refuses now is not watched, the rest is."""
        try:
            await self.listen_for(caller, client, endpoint, digest)
        except (Fault, ForeignError) as refused:
            log.info("not all that a session is subscribed to can be watched: %s", refused)
            agreed: frozenset[Target] = frozenset()
            for target in self._targets(caller, endpoint, digest):
                with suppress(Fault, ForeignError):
                    await self._hub.want(("session", digest), caller, client, agreed | {target})
                    agreed |= {target}

    async def forget(self, digest: str) -> None:
        """The session is over: nothing is watched for it any more."""
        self.end(digest)
        self._hub.drop(("session", digest))

    def end(self, digest: str) -> None:
        """End its standing stream, if it has one here."""
        pump = self._pumps.pop(digest, None)
        if pump is not None:
            pump[0].end()

    async def subscribed(self, digest: str) -> None:
        """Its subscriptions changed in another worker: a stream that stands here has to know before the next change."""
        pump = self._pumps.get(digest)
        if pump is not None:
            await self._rows.load()
            await pump[3]()

    async def _begin(self, inbound: McpHttpRequest, session: McpSession, correlation_id: str) -> EventStream:
        self.end(session.digest)
        stream = self._streams.new(session.digest, correlation_id, inbound.caller.principal)

        def hears(namespace: str, change: ListChange) -> tuple[str, Json] | None:
            return self._meaning(inbound, session.digest, namespace, change)

        ear = self._hub.attach(hears)
        task = asyncio.create_task(self._pump(session.digest, ear, stream), name="standing")
        sync = partial(self._listen_again, inbound.caller, session.client, inbound.path, session.digest)
        self._pumps[session.digest] = (ear, stream, task, sync)
        await sync()
        return stream

    async def _pump(self, digest: str, ear: Listener, stream: EventStream) -> None:
        try:
            while (notification := await ear.next()) is not None:
                await stream.send(notification_bytes(*notification))
        finally:
            self._hub.detach(ear)
            if (mine := self._pumps.get(digest)) is not None and mine[1] is stream:
                del self._pumps[digest]
            self._drop_if_deaf(digest)
            await stream.end()
            if self._rows.ended(digest):
                self._streams.forget(stream)
            else:
                self._streams.forget_later(stream)

    def _meaning(
        self, inbound: McpHttpRequest, digest: str, namespace: str, change: ListChange
    ) -> tuple[str, Json] | None:
        view = self._catalogue.view(inbound.caller, inbound.path)
        if view is None or namespace not in view.namespaces or not inbound.caller.may_receive(change.owner):
            return None
        if change.kind == "resource":
            shown = self._targets(inbound.caller, inbound.path, digest).get((namespace, change.uri))
            return (UPDATED, updated(shown, change)) if shown is not None else None
        return LIST_CHANGED[change.kind], {}

    def _targets(self, caller: Caller, endpoint: str, digest: str) -> dict[Target, str]:
        view = self._catalogue.view(caller, endpoint)
        routes = ((uri, view.resource(uri)) for uri in self._rows.subscriptions(digest)) if view else ()
        return {(route.namespace, route.name): uri for uri, route in routes if route is not None}

    def _drop_if_deaf(self, digest: str) -> None:
        """Nothing is watched for a session that could not be told; its next stream asks for it again."""
        if digest not in self._pumps:
            self._hub.drop(("session", digest))

    def _stop_if_alone(self, left: tuple[str, str]) -> None:
        digest, id = left
        pump = self._pumps.get(digest)
        if pump is not None and pump[1].id == id and pump[1].alone:
            self.end(digest)
