"""Requests of several rounds: a backend's state goes to the client sealed, and comes back only from the same caller.

Calls of the modern era that wait for their client: an older server asked something in the middle of its work.

The client gets `input_required`; its next request, on any connection, brings the answers and goes on with the call.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.contract import Call, Caller, InputResponse, Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.sealed_tokens import InvalidSeal, TokenSeal, mint_state, read_state
from gateway.protocol.strict_json import digest
from gateway.stages.approve import STATE

MULTI_ROUND: Final = frozenset({"tools/call", "prompts/get", "resources/read"})

_ASKS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

_INVALID_PARAMS: Final = -32602

_MISSING_CAPABILITY: Final = -32021


class MultiRound:
    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def out(self, call: Call, result: Json) -> Json:
        """An `input_required` result as the client gets it. Raises when it asks for what this client cannot give."""
        requests = cast("dict[str, Any]", result.get("inputRequests") or {})
        missing = missing_capabilities(call.client.capabilities, requests)
        if missing:
            needed = f"This call needs a client that can do {' and '.join(missing)}."
            raise ForeignError(_MISSING_CAPABILITY, needed, {"requiredCapabilities": missing})
        state, approval = result.get("requestState"), str(call.record.notes.get(STATE, ""))
        if state is None and not approval:
            return result
        route = call.resolved_route
        assert route is not None
        own = str(state) if state is not None else None
        sealed = self.sealed(call.caller, call.method, call.params, route.namespace, own, approval)
        return {**result, "requestState": sealed}

    def sealed(
        self, caller: Caller, method: str, params: Json, namespace: str, state: str | None, approval: str = ""
    ) -> str:
        """A state that only this caller can bring back, with this very request."""
        target, arguments = _bound(params)
        return mint_state(
            self._seal,
            principal=caller.principal,
            method=method,
            target=target,
            arguments_digest=arguments,
            namespace=namespace,
            state=state,
            approval=approval,
        )

    def back(self, caller: Caller, method: str, params: Json, namespace: str | None = None) -> Json:
        """The params with the backend's own state in place of ours; if named, only that backend's."""
        return self.opened(caller, method, params, namespace)[0]

    def opened(
        self, caller: Caller, method: str, params: Json, namespace: str | None = None
    ) -> tuple[Json, InputResponse | None]:
        """The same, and what the gateway itself had asked; what answers that is not for the backend."""
        target, arguments = _bound(params)
        try:
            opened = read_state(
                self._seal,
                params["requestState"],
                principal=caller.principal,
                method=method,
                target=target,
                arguments_digest=arguments,
            )
            if namespace is not None and opened.namespace != namespace:
                raise InvalidSeal
        except InvalidSeal as exc:
            data = {"reason": "invalid_request_state"}
            raise ForeignError(_INVALID_PARAMS, "Invalid or expired requestState", data) from exc
        answered = None
        if opened.approval:
            answered = InputResponse(opened.approval, cast("Json", params.get("inputResponses") or {}))
        if opened.state is not None:
            return {**params, "requestState": opened.state}, answered
        gone = {"requestState", "inputResponses"} if answered else {"requestState"}
        return {key: value for key, value in params.items() if key not in gone}, answered


def missing_capabilities(capabilities: Json, requests: dict[str, Any]) -> dict[str, Json]:
    """What the requests need and the client did not declare."""
    missing: dict[str, Json] = {}
    for request in requests.values():
        name = _ASKS.get(request.get("method", ""))
        if name is None:
            continue
        if name not in capabilities or not isinstance(capabilities[name], dict | None):
            missing.setdefault(name, {})
        elif name == "elicitation":
            params: Json = request.get("params") or {}
            mode = str(params.get("mode") or "form")
            # A client that names no mode fills forms.
            if mode not in (capabilities[name] or {"form": {}}):
                missing.setdefault(name, {})[mode] = {}
    return dict(sorted(missing.items()))


def without_elicitation_id(request: Json) -> Json:
    """Older servers name their URL requests; this revision has no such name."""
    params = request.get("params")
    if not isinstance(params, dict) or "elicitationId" not in params:
        return request
    known = cast("Json", params)
    return {**request, "params": {key: value for key, value in known.items() if key != "elicitationId"}}


def _bound(params: Json) -> tuple[str, str]:
    return params.get("name") or params.get("uri") or "", digest(params.get("arguments") or {})


PARKED_SECONDS: Final = 600.0

MAX_PARKED: Final = 1000

MAX_OF_TENANT: Final = MAX_PARKED // 4


class ParkedCall:
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


class ParkedCalls:
    """The waiting calls of this worker, by a name that only a sealed `requestState` holds."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._parked: dict[str, tuple[ParkedCall, object, str]] = {}
        self._tenants: dict[str, dict[str, ParkedCall]] = {}
        """The same by tenant, oldest first."""

    def __len__(self) -> int:
        return len(self._parked)

    def put(self, parked: ParkedCall, owner: object, tenant: str) -> str:
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

    def _give_up_oldest(self, crowd: dict[str, ParkedCall]) -> None:
        name, parked = next(iter(crowd.items()))
        self._forget(name)
        parked.give_up()

    def elsewhere(self, state: str) -> str | None:
        """The other worker that a state names; None when it is this one."""
        worker, _, _ = state.partition(" ")
        return None if worker == self._worker else worker

    def find(self, state: str) -> tuple[ParkedCall, object]:
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
