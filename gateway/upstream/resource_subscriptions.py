"""Resources that clients subscribed to, each in its own session with the server: no two principals share one."""

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
"""How long whoever subscribes waits for the server to have heard of it."""

Changed = Callable[[ListChange, Caller], None]


class SubscribableSession(Protocol):
    """The way to a server that can be subscribed to."""

    def party(self, caller: Caller, client: ClientProfile) -> Hashable:
        """Equal for those who are one to the server."""
        ...

    async def hear(self, caller: Caller, client: ClientProfile, uris: frozenset[str], hearing: ChangeListener) -> None:
        """Subscribe in that client's own session and hear of updates until the server ends it.

        `hearing.ready` is called when the server listens. Raises `Fault` when it cannot be reached, `ForeignError` when
        it refuses.
        """
        ...


class ResourceSubscriptions:
    """What is wanted of one server now."""

    def __init__(self, name: str, link: SubscribableSession, changed: Changed) -> None:
        self._name = name
        self._link = link
        self._changed = changed
        self._held: dict[Hashable, _Watch] = {}
        self._wanted: dict[Hashable, frozenset[str]] = {}

    async def want(self, wants: Sequence[ResourceInterest]) -> None:
        """Exactly these from now on. Raises `ForeignError` when the server refuses one that was not wanted before.

        What it refuses of others is their matter: whoever asks for something else must not hear of it.
        """
        wanted: dict[Hashable, frozenset[str]] = {}
        for each in wants:
            party = self._link.party(each.caller, each.client)
            wanted[party] = wanted.get(party, frozenset()) | each.uris
            if party not in self._held:
                self._held[party] = _Watch(self._name, self._link, self._changed, each.caller, each.client)
        gone = [self._held.pop(party) for party in list(self._held) if party not in wanted]
        asking = {party for party, uris in wanted.items() if uris != self._wanted.get(party)}
        self._wanted = wanted
        due = [party for party, uris in wanted.items() if party in asking or self._held[party].refused != uris]
        outcomes = await asyncio.gather(
            *(self._held[party].change(wanted[party]) for party in due),
            *(each.stop() for each in gone),
            return_exceptions=True,
        )
        failed = {party: outcome for party, outcome in zip(due, outcomes, strict=False) if outcome is not None}
        for party, outcome in failed.items():
            if party not in asking:
                log.info("%s still refuses what somebody wants to hear of: %s", self._name, outcome)
        for party in asking & failed.keys():
            raise failed[party]

    async def close(self) -> None:
        held = list(self._held.values())
        self._held.clear()
        self._wanted = {}
        await asyncio.gather(*(each.stop() for each in held))


class _Watch:
    """One party's. To want something else it begins anew before it ends the old, so that no update is missed."""

    def __init__(
        self, name: str, link: SubscribableSession, changed: Changed, caller: Caller, client: ClientProfile
    ) -> None:
        self._name = name
        self._link = link
        self._changed = changed
        self._caller = caller
        self._client = client
        self._uris: frozenset[str] = frozenset()
        self._follower: ListWatcher | None = None
        self.refused: frozenset[str] | None = None
        """What the server would not have, if that was what was wanted last."""
        self._changing = asyncio.Lock()

    async def change(self, uris: frozenset[str]) -> None:
        if uris == self._uris:
            return  # also where somebody else still waits for the server to have heard of it
        async with self._changing:
            if uris == self._uris:
                return
            before, held, self._uris = self._follower, self._uris, uris
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._follower, self.refused = ListWatcher(self._name, lambda: self._listen(uris, ready)), None
            self._follower.start()
            try:
                # A server that cannot be reached now is told later.
                with suppress(TimeoutError, Fault):
                    async with asyncio.timeout(READY_SECONDS):
                        await asyncio.shield(ready)
            except ForeignError:
                # It goes on with what it had.
                before, self._follower = self._follower, before
                self._uris, self.refused = held, uris
                raise
            finally:
                ready.cancel()
                if before is not None:
                    await before.stop()

    async def stop(self) -> None:
        async with self._changing:
            if self._follower is not None:
                await self._follower.stop()
                self._follower = None

    async def _listen(self, uris: frozenset[str], ready: "asyncio.Future[None]") -> None:
        def told() -> None:
            if not ready.done():
                ready.set_result(None)

        try:
            await self._link.hear(self._caller, self._client, uris, ChangeListener(self._say, told))
        except (Fault, ForeignError) as exc:
            if not ready.done():
                ready.set_exception(exc)
                ready.exception()  # looked at: whoever waited may be gone
            raise

    def _say(self, change: ListChange) -> None:
        self._changed(change, self._caller)


class SubscribedResources:
    """What one session of the handshake era is subscribed to; several may want the same."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def more(self, uris: Iterable[str]) -> list[str]:
        """Those that the server has to be asked for."""
        fresh = [uri for uri in uris if not self._counts[uri]]
        self._counts.update(uris)
        return sorted(fresh)

    def less(self, uris: Iterable[str]) -> list[str]:
        """Those that nobody wants any more."""
        self._counts.subtract(uris)
        over = sorted(uri for uri in uris if self._counts[uri] <= 0)
        for uri in over:
            del self._counts[uri]
        return over
