"""Calls of the modern era that wait for their client: an older server asked something in the middle of its work.

The client gets `input_required`; its next request, on any connection, brings the answers and goes on with the call.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Final

from gateway.contract import Json
from gateway.errors import Fault, Kind

PARKED_SECONDS: Final = 600.0
MAX_PARKED: Final = 1000
MAX_OF_TENANT: Final = MAX_PARKED // 4


class Parked:
    """One waiting call: what it asked, and what has been answered so far."""

    def __init__(self, requests: Mapping[str, Json]) -> None:
        self.requests = dict(requests)
        self._answers: dict[str, Json] = {}
        self._all: asyncio.Future[dict[str, Json]] = asyncio.get_running_loop().create_future()

    async def answers(self) -> dict[str, Json]:
        """All the answers. Raises `Fault` when the client does not come back, or has to make room."""
        try:
            async with asyncio.timeout(PARKED_SECONDS):
                return await self._all
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, "The client did not come back with an answer.") from exc

    def take(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Note the answers; what is still open. Unknown keys mean nothing."""
        self._answers |= {key: given[key] for key in self.requests if key in given}
        missing = {key: request for key, request in self.requests.items() if key not in self._answers}
        if not missing and not self._all.done():
            self._all.set_result(self._answers)
        return missing

    def give_up(self, why: str = "Too many calls wait for their clients.") -> None:
        if not self._all.done():
            self._all.set_exception(Fault(Kind.UNAVAILABLE, why))


class Parking:
    """The waiting calls of this worker, by a name that only a sealed `requestState` holds."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._parked: dict[str, tuple[Parked, object, str]] = {}
        self._tenants: dict[str, dict[str, Parked]] = {}
        """The same by tenant, oldest first."""

    def __len__(self) -> int:
        return len(self._parked)

    def put(self, parked: Parked, owner: object, tenant: str) -> str:
        """The state to seal. `owner` is what `find` gives back: the call's wire.

        Where there are too many, the oldest gives up: of that tenant beyond its share, else of the one that has most.
        """
        name = secrets.token_hex(16)
        self._parked[name] = (parked, owner, tenant)
        mine = self._tenants.setdefault(tenant, {})
        mine[name] = parked
        if len(mine) > MAX_OF_TENANT:
            self._give_up_oldest(mine)
        elif len(self._parked) > MAX_PARKED:
            self._give_up_oldest(max(self._tenants.values(), key=len))
        return f"{self._worker} {name}"

    def _give_up_oldest(self, crowd: dict[str, Parked]) -> None:
        name, parked = next(iter(crowd.items()))
        self._forget(name)
        parked.give_up()

    def elsewhere(self, state: str) -> str | None:
        """The other worker that a state names; None when it is this one."""
        worker, _, _ = state.partition(" ")
        return None if worker == self._worker else worker

    def find(self, state: str) -> tuple[Parked, object]:
        """Raises `Fault(UNAVAILABLE)` when its worker is another, or it is gone."""
        worker, _, name = state.partition(" ")
        found = self._parked.get(name) if worker == self._worker else None
        if found is None:
            raise Fault(Kind.UNAVAILABLE, "The call that asked is gone; make it again.")
        return found[:2]

    def forget(self, state: str) -> None:
        self._forget(state.rpartition(" ")[2])

    def _forget(self, name: str) -> None:
        known = self._parked.pop(name, None)
        if known is not None:
            crowd = self._tenants[known[2]]
            del crowd[name]
            if not crowd:
                del self._tenants[known[2]]

    def close(self) -> None:
        """This worker stops: whoever comes back is told to make the call again."""
        for parked, _, _ in list(self._parked.values()):
            parked.give_up("The gateway is restarting; make the call again.")
