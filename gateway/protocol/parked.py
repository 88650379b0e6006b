"""Calls of the modern era that wait for their client: an older server asked something in the middle of its work.

The client gets `input_required`; its next request, on any connection, brings the answers and goes on with the call.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from gateway.contract import Json
from gateway.errors import Fault, Kind

PARKED_SECONDS: Final = 600.0
MAX_PARKED: Final = 1000


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
        self._parked: OrderedDict[str, tuple[Parked, object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parked)

    def put(self, parked: Parked, owner: object) -> str:
        """The state to seal. `owner` is what `find` gives back: the call's wire."""
        name = secrets.token_hex(16)
        self._parked[name] = (parked, owner)
        while len(self._parked) > MAX_PARKED:
            self._parked.popitem(last=False)[1][0].give_up()
        return f"{self._worker} {name}"

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
        return found

    def forget(self, state: str) -> None:
        self._parked.pop(state.rpartition(" ")[2], None)

    def close(self) -> None:
        """This worker stops: whoever comes back is told to make the call again."""
        for parked, _ in list(self._parked.values()):
            parked.give_up("The gateway is restarting; make the call again.")
