"""Requests of several rounds: a backend's state goes to the client sealed, and comes back only from the same caller."""

from typing import Any, Final, cast

from gateway.contract import Call, Caller, InputResponse, Json
from gateway.errors import ForeignError
from gateway.protocol.json import digest
from gateway.protocol.seal import Seal, Unsealed, mint_state, read_state
from gateway.stages.approve import STATE

MULTI_ROUND: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
_ASKS: Final = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_INVALID_PARAMS: Final = -32602
_MISSING_CAPABILITY: Final = -32021


class Rounds:
    def __init__(self, seal: Seal) -> None:
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
                raise Unsealed
        except Unsealed as exc:
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
