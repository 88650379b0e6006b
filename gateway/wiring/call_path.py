"""The paths that calls walk: which stages, in which order, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Call, Handler, Result, Stage
from gateway.pipeline import compose
from gateway.policy.decisions import Authorizer
from gateway.protocol.context import Refusal, RouteLookup
from gateway.settings import Settings
from gateway.stages.approve import Approve
from gateway.stages.audit import Audit
from gateway.stages.authorize import Authorize, checking
from gateway.stages.deadline import Deadline
from gateway.stages.dispatch import Dispatch
from gateway.stages.guard import Guard
from gateway.stages.limit import Limit
from gateway.stages.resolve import Resolve
from gateway.stages.share import Share
from gateway.stages.trace import Trace
from gateway.stages.validate import Validate
from gateway.state.approvals import Approvals


@dataclass(frozen=True, slots=True)
class CallPaths:
    call: Handler
    """For what reaches a backend."""
    short: Callable[[Handler], Handler]
    """Around an end of its own: lists, discovery, subscriptions."""
    refused: Callable[[Refusal], Handler]
    """For what the door itself refuses, so that it is charged, audited and told as well."""
    charged: Handler
    """For what is no request: notifications, and answers to what was asked."""
    under_way: Callable[[], list[Call]]
    """The calls that are at a backend now, or wait for a place at one."""


def lay(
    settings: Settings,
    catalogue: Catalogue,
    policy: Authorizer,
    approvals: Approvals,
    trace: Trace,
    audit: Audit,
    limit: Limit,
    share: Share,
) -> CallPaths:
    calls, deadline = settings.calls, Deadline()
    # The order, and why: `trace` and `audit` see everything that happens inside; `limit` charges every call, also one
    # that is refused later; `resolve` makes hidden and unknown alike; `validate` bounds and checks the arguments before
    # policy sees them; `guard` and `deadline` bound what the backend may give and take; `share` is last, so that only
    # calls that would be carried out wait for a place, and no longer than they may.
    begin: tuple[tuple[str, Stage], ...] = (("trace", trace), ("audit", audit), ("limit", limit))
    call = compose(
        (
            *begin,
            ("resolve", Resolve(RouteLookup(catalogue), policy.barred)),
            ("validate", Validate(calls.max_arguments_bytes, calls.max_depth, calls.max_keys, calls.max_string)),
            ("authorize", Authorize(policy.decide)),
            ("approve", Approve(approvals, checking(policy.decide))),
            ("guard", Guard(calls.max_result_bytes)),
            ("deadline", deadline),
            ("share", share),
        ),
        Dispatch(),
        "dispatch",
    )
    short = partial(compose, (*begin, ("authorize", Authorize(policy.decide_list))))
    charged = compose((("limit", limit),), _nothing)
    return CallPaths(call, short, lambda reason: compose(begin, _raising(reason), "edge"), charged, deadline.under_way)


async def _nothing(call: Call) -> Result:
    return {}


def _raising(reason: Refusal) -> Handler:
    async def raising(call: Call) -> Result:
        raise reason

    return raising
