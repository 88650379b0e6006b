"""Policy decides; the record keeps what it decided and by which rules."""

from collections.abc import Awaitable, Callable

from gateway.contract import Call, Handler, Result
from gateway.policy.rules import Decision


class Authorize:
    def __init__(self, decide: Callable[[Call], Decision]) -> None:
        self._decide = decide

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        decision = self._decide(call)
        record = call.record
        record.policies = decision.policies
        if decision.fault is not None:
            record.decision = "deny"
            raise decision.fault
        record.decision = "allow"
        if decision.needs_approval:
            record.notes["needs_approval"] = True
        return call_next(call)
