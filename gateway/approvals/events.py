"""Audit records of approvals: asked, seen, decided, run, granted and revoked. They contain no arguments."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from gateway.contract import Caller
from gateway.errors import Fault
from gateway.state.approval_rows import ApprovalRow

log = logging.getLogger("gatehouse.approvals")

ApprovalEvent = Literal["asked", "seen", "approved", "denied", "run", "granted", "revoked"]
_DECISIONS: Final = {"approved": "allow", "granted": "allow", "run": "allow", "denied": "deny", "asked": "ask"}


class ApprovalAudit:
    """Writes one audit record for each event. `put` queues a row of the audit log; None if audit is disabled."""

    def __init__(self, put: Callable[[tuple[Any, ...]], object] | None, clock: Callable[[], float] = time.time) -> None:
        self._put = put
        self._clock = clock

    def record(self, event: ApprovalEvent, actor: Caller, row: ApprovalRow, detail: str = "") -> None:
        """Record what `actor` did. The log line has the same content, for operators without the audit log."""
        log.info("approval %s: %s by %s (%s)", row.id, event, actor.principal, row.tool, extra={"tenant": row.tenant})
        if self._put is None:
            return
        context = msgspec.json.encode({"groups": sorted(actor.groups), "caller": row.principal}).decode()
        try:
            self._put(
                (
                    self._clock(),
                    row.tenant,
                    actor.principal,
                    actor.credential,
                    row.correlation_id,
                    f"approvals/{event}",
                    row.tool[:256],
                    row.effect,
                    _DECISIONS.get(event, "none"),
                    row.policies,
                    row.arguments_digest,
                    "ok",
                    0,
                    "",
                    context,
                    f"approval:{row.id}",
                    detail[:256],
                )
            )
        except Fault:
            log.exception("approval %s: the audit record of %s was not written", row.id, event)
            raise
