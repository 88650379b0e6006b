"""Multi-round requests of the modern era: the client repeats a request with the input that the call requires.

`MultiRound` seals a backend's `requestState`, so that only the same caller can return it. `ParkedCalls` holds the calls
that wait while an older server asks the client: the client gets `input_required`, and its next request, on any
connection, brings the answers and resumes the call. `ModernEra` uses both.
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

MULTI_ROUND_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
PARKED_SECONDS: Final = 600.0
"""How long a parked call waits for its client."""
MAX_PARKED: Final = 1000
MAX_PARKED_PER_TENANT: Final = MAX_PARKED // 4

_CAPABILITY_BY_METHOD: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_INVALID_PARAMS: Final = -32602
_MISSING_CAPABILITY: Final = -32021


class MultiRound:
    """Seals and opens the `requestState` of multi-round requests, bound to the caller and the request."""

    def __init__(self, seal: TokenSeal) -> None:
        self._seal = seal

    def seal_result(self, call: Call, result: Json) -> Json:
        """Return an `input_required` result with a sealed state.

        Raises `ForeignError` if the client does not support what the result asks for.
        """
        requests = cast("dict[str, Any]", result.get("inputRequests") or {})
        missing = missing_capabilities(call.client.capabilities, requests)
        if missing:
            message = f"This call requires a client that supports {' and '.join(missing)}."
            raise ForeignError(_MISSING_CAPABILITY, message, {"requiredCapabilities": missing})
        state, approval = result.get("requestState"), str(call.record.notes.get(STATE, ""))
        if state is None and not approval:
            return result
        route = call.resolved_route
        assert route is not None
        backend_state = str(state) if state is not None else None
        sealed = self.seal_state(call.caller, call.method, call.params, route.namespace, backend_state, approval)
        return {**result, "requestState": sealed}

    def seal_state(
        self, caller: Caller, method: str, params: Json, namespace: str, state: str | None, approval: str = ""
    ) -> str:
        """Seal a state that only this caller can return, and only with the same request."""
        target, arguments = _target_and_digest(params)
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

    def open_params(self, caller: Caller, method: str, params: Json, namespace: str | None = None) -> Json:
        """Return the params with the opened state; with `namespace`, only a state of that backend is accepted."""
        return self.open_request(caller, method, params, namespace)[0]

    def open_request(
        self, caller: Caller, method: str, params: Json, namespace: str | None = None
    ) -> tuple[Json, InputResponse | None]:
        """Return the params like `open_params`, and the answer to an input request of the gateway itself.

        That answer is removed from the params: it is not for the backend.
        """
        target, arguments = _target_and_digest(params)
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
        input_response = None
        if opened.approval:
            input_response = InputResponse(opened.approval, cast("Json", params.get("inputResponses") or {}))
        if opened.state is not None:
            return {**params, "requestState": opened.state}, input_response
        consumed = {"requestState", "inputResponses"} if input_response else {"requestState"}
        return {key: value for key, value in params.items() if key not in consumed}, input_response


def missing_capabilities(capabilities: Json, requests: dict[str, Any]) -> dict[str, Json]:
    """Return the capabilities that the requests need and the client did not declare."""
    missing: dict[str, Json] = {}
    for request in requests.values():
        name = _CAPABILITY_BY_METHOD.get(request.get("method", ""))
        if name is None:
            continue
        if name not in capabilities or not isinstance(capabilities[name], dict | None):
            missing.setdefault(name, {})
        elif name == "elicitation":
            params: Json = request.get("params") or {}
            mode = str(params.get("mode") or "form")
            # A client that declares no mode supports forms.
            if mode not in (capabilities[name] or {"form": {}}):
                missing.setdefault(name, {})[mode] = {}
    return dict(sorted(missing.items()))


def without_elicitation_id(request: Json) -> Json:
    """Return the request without `elicitationId`, which older servers send and this revision does not define."""
    params = request.get("params")
    if not isinstance(params, dict) or "elicitationId" not in params:
        return request
    known = cast("Json", params)
    return {**request, "params": {key: value for key, value in known.items() if key != "elicitationId"}}


def _target_and_digest(params: Json) -> tuple[str, str]:
    return params.get("name") or params.get("uri") or "", digest(params.get("arguments") or {})


class ParkedCall:
    """A call that waits for its client: the input requests, and the answers so far."""

    def __init__(self, requests: Mapping[str, Json]) -> None:
        self.requests = dict(requests)
        self._answers: dict[str, Json] = {}
        self._completed: asyncio.Future[dict[str, Json]] = asyncio.get_running_loop().create_future()

    async def wait_for_answers(self) -> dict[str, Json]:
        """Wait for all answers. Raises `Fault` if they do not arrive in time, or if the call is evicted."""
        try:
            async with asyncio.timeout(PARKED_SECONDS):
                return await self._completed
        except TimeoutError as exc:
            raise Fault(Kind.TIMEOUT, "The client did not answer the input request in time.") from exc

    def add_answers(self, answers: Mapping[str, Json]) -> dict[str, Json]:
        """Add answers and return the requests that are still unanswered. Unknown keys are ignored."""
        self._answers |= {key: answers[key] for key in self.requests if key in answers}
        missing = {key: request for key, request in self.requests.items() if key not in self._answers}
        if not missing and not self._completed.done():
            self._completed.set_result(self._answers)
        return missing

    def fail(self, message: str = "Too many calls are waiting for client input. Try again later.") -> None:
        if not self._completed.done():
            self._completed.set_exception(Fault(Kind.UNAVAILABLE, message))


class ParkedCalls:
    """The parked calls of this worker, by a random name that only a sealed `requestState` contains."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._parked: dict[str, tuple[ParkedCall, object, str]] = {}
        self._tenants: dict[str, dict[str, ParkedCall]] = {}
        """The same calls by tenant, oldest first."""

    def __len__(self) -> int:
        return len(self._parked)

    def add(self, parked: ParkedCall, owner: object, tenant: str) -> str:
        """Park a call and return the state to seal. `find` returns `owner`, the wire of the call.

        Above the limits the oldest call fails: of this tenant above its share, otherwise of the tenant with most calls.
        """
        name = secrets.token_hex(16)
        self._parked[name] = (parked, owner, tenant)
        of_tenant = self._tenants.setdefault(tenant, {})
        of_tenant[name] = parked
        if len(of_tenant) > MAX_PARKED_PER_TENANT:
            self._evict_oldest(of_tenant)
        elif len(self._parked) > MAX_PARKED:
            self._evict_oldest(max(self._tenants.values(), key=len))
        return f"{self._worker} {name}"

    def _evict_oldest(self, of_tenant: dict[str, ParkedCall]) -> None:
        name, parked = next(iter(of_tenant.items()))
        self._remove(name)
        parked.fail()

    def other_worker(self, state: str) -> str | None:
        """Return the worker that a state names; None if it is this one."""
        worker, _, _ = state.partition(" ")
        return None if worker == self._worker else worker

    def find(self, state: str) -> tuple[ParkedCall, object]:
        """Return a parked call and its owner. Raises `Fault(UNAVAILABLE)` if it is not parked in this worker."""
        worker, _, name = state.partition(" ")
        found = self._parked.get(name) if worker == self._worker else None
        if found is None:
            raise Fault(Kind.UNAVAILABLE, "The call that requested this input has ended. Make the call again.")
        return found[:2]

    def remove(self, state: str) -> None:
        self._remove(state.rpartition(" ")[2])

    def _remove(self, name: str) -> None:
        known = self._parked.pop(name, None)
        if known is not None:
            of_tenant = self._tenants[known[2]]
            del of_tenant[name]
            if not of_tenant:
                del self._tenants[known[2]]

    def close(self) -> None:
        """Fail all parked calls, because this worker stops."""
        for parked, _, _ in list(self._parked.values()):
            parked.fail("The gateway is restarting. Make the call again.")
