"""The authorize stage: asks the policies, and records the decision, the deciding policies and their context."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.contract import Call, Handler, Json, Result
from gateway.policy.decisions import Decision


def recheck(decide: Callable[[Call], Decision]) -> Callable[[Call], None]:
    """Return a check that raises `Fault` if the policies deny the call now."""

    def check(call: Call) -> None:
        decision = decide(call)
        if decision.denied:
            call.record.policies, call.record.decision = decision.policies, "deny"
            raise decision.fault(str(call.params.get("name") or call.params.get("uri") or ""))

    return check


def authorize_task(decide: Callable[[Call], Decision]) -> Callable[[Call, Json], None]:
    """Return a check of requests about a task: raises `Fault` if the policies deny the task's own call now.

    An approval that the call needed is not asked for again.
    """

    def check(call: Call, params: Json) -> None:
        original = replace(call, method="tools/call", params=params)
        decision = decide(original)
        record = call.record
        record.policies, record.context = decision.policies, decision.context
        record.decision = "deny" if decision.denied else "allow"
        if decision.denied:
            raise decision.fault(str(params.get("name") or ""))

    return check


class Authorize:
    """Raises the decision's `Fault` for a denied call; notes a required approval for the approve stage."""

    def __init__(self, decide: Callable[[Call], Decision]) -> None:
        self._decide = decide

    def __call__(self, call: Call, call_next: Handler) -> Awaitable[Result]:
        decision = self._decide(call)
        record = call.record
        record.policies = decision.policies
        record.context = decision.context
        if decision.denied:
            record.decision = "deny"
            raise decision.fault(str(call.params.get("name") or call.params.get("uri") or ""))
        record.decision = "allow"
        if decision.approval:
            record.notes["approval"] = decision.approval
            record.notes["approval_reason"] = decision.message
            record.notes["approval_decision"] = decision
        return call_next(call)
