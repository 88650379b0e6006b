"""The order of the stages, and why. `gateway.app` builds the paths once at start."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.approvals.held_calls import HeldCalls
from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Call, Handler, Result, Stage
from gateway.policy.decisions import Authorizer
from gateway.protocol.context import Refusal, RouteLookup
from gateway.settings import Settings
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit, Intent
from gateway.stages.authorize import Authorize, recheck
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard
from gateway.stages.limit import Limit
from gateway.stages.pipeline import compose
from gateway.stages.resolve import Resolve
from gateway.stages.share import Share
from gateway.stages.task import Task
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.approvals import Approvals


@dataclass(frozen=True, slots=True)
class CallPaths:
    """The composed handlers for each group of methods."""

    full: Handler
    """All stages: calls that reach a backend."""
    short: Callable[[Handler], Handler]
    """Wraps a handler of the gateway itself: lists, discovery, subscriptions."""
    refusal: Callable[[Refusal], Handler]
    """For requests rejected by the protocol layer, which are charged, audited and traced like other calls."""
    charge_only: Handler
    """For notifications and responses, which only count against the rate limits."""
    running_calls: Callable[[], list[Call]]
    """The calls that run at a backend now, or wait for capacity there."""
    tasks: Callable[[Handler], Handler]
    """Wraps the handler of requests about tasks, which asks the policies itself."""
    guard: Stage
    """Checks and cleans a result."""


def build_call_paths(
    settings: Settings,
    catalogue: Catalogue,
    policy: Authorizer,
    approvals: Approvals,
    trace: Trace,
    audit: Audit,
    intent: Intent | None,
    limit: Limit,
    share: Share,
    held_calls: HeldCalls,
) -> CallPaths:
    calls, deadline, guard = settings.calls, Deadline(), Guard(settings.calls.max_result_bytes)
    # The order matters:
    # - `trace` and `audit` are outermost: they see every outcome.
    # - `limit` charges every call, including those that a later stage rejects.
    # - `resolve` gives hidden and unknown names the same error.
    # - `validate` checks the arguments before the policies see them.
    # - `task` is after all stages that may refuse the call, so a refusal is an answer and not a failed task.
    # - `guard` and `deadline` bound the backend's result and time.
    # - `share` is last: only calls that would be executed wait for capacity, and the deadline covers the wait.
    # - `intent` is committed by `dispatch`: its record says that the call is sent now.
    begin: tuple[tuple[str, Stage], ...] = (("trace", trace), ("audit", audit), ("limit", limit))
    call = compose(
        (
            *begin,
            ("resolve", Resolve(RouteLookup(catalogue), policy.tenant_denial)),
            ("validate", Validate(calls.max_arguments_bytes, calls.max_depth, calls.max_keys, calls.max_string)),
            ("authorize", Authorize(policy.decide)),
            ("approve", Approve(approvals, recheck(policy.decide), held_calls)),
            ("task", Task()),
            ("guard", guard),
            ("deadline", deadline),
            ("share", share),
        ),
        Dispatch(intent.commit if intent is not None else None),
        "dispatch",
    )
    short = partial(compose, (*begin, ("authorize", Authorize(policy.decide_list))))
    charged = compose((("limit", limit),), _empty_result)
    return CallPaths(
        full=call,
        short=short,
        refusal=lambda reason: compose(begin, _raise(reason), "edge"),
        charge_only=charged,
        running_calls=deadline.running,
        tasks=partial(compose, begin),
        guard=guard,
    )


async def _empty_result(call: Call) -> Result:
    return {}


def _raise(reason: Refusal) -> Handler:
    async def raising(call: Call) -> Result:
        raise reason

    return raising
