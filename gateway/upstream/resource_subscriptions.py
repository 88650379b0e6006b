"""Upstream resource subscriptions of clients, each in the client's own upstream session.

Used by `RemoteBackend`, and (`SubscribedResources`) by the sessions and channels of the handshake era.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from gateway.contract import Caller, ClientProfile, ListChange, ResourceInterest
from gateway.errors import Fault, ForeignError
from gateway.upstream.lists import ChangeListener, ListWatcher

log = logging.getLogger("gatehouse.upstream")

READY_SECONDS: Final = 3.0
"""How long a subscribing client waits for the server's confirmation."""

OnChange = Callable[[ListChange, Caller], None]


class SubscribableSession(Protocol):
    """The part of a transport that `ResourceSubscriptions` uses."""

    def subscription_key(self, caller: Caller, client: ClientProfile) -> Hashable:
        """Equal for clients that share an upstream session."""
        ...

    async def subscribe(
        self, caller: Caller, client: ClientProfile, uris: frozenset[str], listener: ChangeListener
    ) -> None:
        """Subscribe in that client's session and pass updates to `listener` until the server ends the stream.

        Calls `listener.on_ready` when the server has confirmed. Raises `Fault` when the server cannot be reached,
        `ForeignError` when it refuses.
        """
        ...


class ResourceSubscriptions:
    """The current subscriptions to resources of one server, by upstream session."""

    def __init__(self, name: str, transport: SubscribableSession, on_change: OnChange) -> None:
        self._name = name
        self._transport = transport
        self._on_change = on_change
        self._subscriptions: dict[Hashable, _Subscription] = {}
        self._uris_by_key: dict[Hashable, frozenset[str]] = {}

    async def set_interests(self, interests: Sequence[ResourceInterest]) -> None:
        """Replace all subscriptions. Raises `ForeignError` when the server refuses a new one.

        A refusal that concerns an unchanged subscription is only logged: it must not fail another client's request.
        """
        uris_by_key: dict[Hashable, frozenset[str]] = {}
        for each in interests:
            key = self._transport.subscription_key(each.caller, each.client)
            uris_by_key[key] = uris_by_key.get(key, frozenset()) | each.uris
            if key not in self._subscriptions:
                self._subscriptions[key] = _Subscription(
                    self._name, self._transport, self._on_change, each.caller, each.client
                )
        removed = [self._subscriptions.pop(key) for key in list(self._subscriptions) if key not in uris_by_key]
        changed_keys = {key for key, uris in uris_by_key.items() if uris != self._uris_by_key.get(key)}
        self._uris_by_key = uris_by_key
        due = [
            key
            for key, uris in uris_by_key.items()
            if key in changed_keys or self._subscriptions[key].refused_uris != uris
        ]
        outcomes = await asyncio.gather(
            *(self._subscriptions[key].update(uris_by_key[key]) for key in due),
            *(each.stop() for each in removed),
            return_exceptions=True,
        )
        failed = {key: outcome for key, outcome in zip(due, outcomes, strict=False) if outcome is not None}
        for key, outcome in failed.items():
            if key not in changed_keys:
                log.info("upstream %s: resource subscription refused again: %s", self._name, outcome)
        for key in changed_keys & failed.keys():
            raise failed[key]

    async def close(self) -> None:
        subscriptions = list(self._subscriptions.values())
        self._subscriptions.clear()
        self._uris_by_key = {}
        await asyncio.gather(*(each.stop() for each in subscriptions))


class _Subscription:
    """The subscription of one upstream session. An update starts the new stream before it ends the old one."""

    def __init__(
        self, name: str, transport: SubscribableSession, on_change: OnChange, caller: Caller, client: ClientProfile
    ) -> None:
        self._name = name
        self._transport = transport
        self._on_change = on_change
        self._caller = caller
        self._client = client
        self._uris: frozenset[str] = frozenset()
        self._watcher: ListWatcher | None = None
        self.refused_uris: frozenset[str] | None = None
        """The URIs of the last update, if the server refused them."""
        self._lock = asyncio.Lock()

    async def update(self, uris: frozenset[str]) -> None:
        if uris == self._uris:
            return  # also while another task still waits for the confirmation
        async with self._lock:
            if uris == self._uris:
                return
            previous, previous_uris, self._uris = self._watcher, self._uris, uris
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watcher, self.refused_uris = ListWatcher(self._name, lambda: self._listen(uris, ready)), None
            self._watcher.start()
            try:
                # For a server that cannot be reached now, the watcher retries.
                with suppress(TimeoutError, Fault):
                    async with asyncio.timeout(READY_SECONDS):
                        await asyncio.shield(ready)
            except ForeignError:
                # Keep the previous subscription.
                previous, self._watcher = self._watcher, previous
                self._uris, self.refused_uris = previous_uris, uris
                raise
            finally:
                ready.cancel()
                if previous is not None:
                    await previous.stop()

    async def stop(self) -> None:
        async with self._lock:
            if self._watcher is not None:
                await self._watcher.stop()
                self._watcher = None

    async def _listen(self, uris: frozenset[str], ready: "asyncio.Future[None]") -> None:
        def on_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        try:
            await self._transport.subscribe(self._caller, self._client, uris, ChangeListener(self._forward, on_ready))
        except (Fault, ForeignError) as exc:
            if not ready.done():
                ready.set_exception(exc)
                ready.exception()  # mark as retrieved: the waiting task may have been cancelled
            raise

    def _forward(self, change: ListChange) -> None:
        self._on_change(change, self._caller)


class SubscribedResources:
    """Reference counts of the subscribed URIs of one handshake-era session."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, uris: Iterable[str]) -> list[str]:
        """Count the URIs. Returns those to subscribe to now."""
        new = [uri for uri in uris if not self._counts[uri]]
        self._counts.update(uris)
        return sorted(new)

    def remove(self, uris: Iterable[str]) -> list[str]:
        """Release the URIs. Returns those to unsubscribe from now."""
        self._counts.subtract(uris)
        unused = sorted(uri for uri in uris if self._counts[uri] <= 0)
        for uri in unused:
            del self._counts[uri]
        return unused
