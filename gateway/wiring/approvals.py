"""Builds approvals: held calls, their review, notifications, retention, and the MCP namespace `approvals`."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from gateway.approvals.delivery import EMAIL, ApprovalNotifier, Channel, EmailChannel, WebhookChannel
from gateway.approvals.events import ApprovalAudit
from gateway.approvals.held_calls import ApprovalBounds, HeldCalls
from gateway.approvals.redaction import RedactionRule
from gateway.approvals.review import ApprovalReview
from gateway.outbound import create_client
from gateway.settings import Settings
from gateway.state.approval_deliveries import ApprovalDeliveries
from gateway.state.approval_rows import ApprovalRows
from gateway.state.audit import AuditLog
from gateway.state.database import Database
from gateway.wiring.outbound import outbound_route

log = logging.getLogger("gatehouse.approvals")

_PRUNE_SECONDS: Final = 600.0
OnClose = Callable[[Callable[[], Awaitable[None]]], object]


@dataclass(slots=True)
class ApprovalWiring:
    """The parts of approvals. `redactions` changes when settings are applied."""

    held_calls: HeldCalls
    review: ApprovalReview
    notifier: ApprovalNotifier
    deliveries: ApprovalDeliveries
    link: Callable[[str], str]
    redactions: dict[str, RedactionRule]
    _rows: ApprovalRows
    _keep_seconds: float
    _keep_arguments_seconds: float

    @classmethod
    def build(
        cls, settings: Settings, database: Database, audit_log: AuditLog, console_url: str, on_close: OnClose
    ) -> "ApprovalWiring":
        options, rows, deliveries = settings.approvals, ApprovalRows(database), ApprovalDeliveries(database)
        audit = ApprovalAudit(audit_log.put if settings.audit.enabled else None)
        enabled = settings.console.enabled

        def link(id: str) -> str:
            return f"{console_url}/console/approvals/{id}" if enabled else ""

        notifier = ApprovalNotifier(deliveries, rows, _channels(settings, on_close), link)
        bounds = ApprovalBounds(
            options.max_waiting_per_principal,
            options.max_waiting_per_tenant,
            options.max_arguments_bytes,
            options.max_grants_per_principal,
        )
        held_calls = HeldCalls(rows, audit, bounds, link=link, channels=notifier.channels_for, on_asked=notifier.wake)
        redactions: dict[str, RedactionRule] = {}
        review = ApprovalReview(rows, audit, lambda: redactions)
        wiring = cls(
            held_calls,
            review,
            notifier,
            deliveries,
            link,
            redactions,
            rows,
            options.keep_days * 86400,
            options.keep_arguments_hours * 3600,
        )
        wiring.apply(settings)
        return wiring

    def apply(self, settings: Settings) -> None:
        """Use the redaction rules of these settings."""
        self.redactions.clear()
        for name, tenant in settings.tenants.items():
            rule = tenant.approvals
            self.redactions[name] = RedactionRule(rule.redact, frozenset(rule.visible_to))

    async def prune_periodically(self) -> None:
        """Erase arguments and delete rows whose time has passed, until cancelled."""
        while True:
            try:
                await self.prune()
            except Exception:  # the task must survive a database outage
                log.exception("approvals: deleting old rows failed; retry in %g s", _PRUNE_SECONDS)
            await asyncio.sleep(_PRUNE_SECONDS)

    async def retry_delivery(self, tenant: str, id: str) -> bool:
        """Send a dead letter again. False if there is none with this id."""
        found = await self.deliveries.retry(tenant, id, time.time())
        self.notifier.wake()
        return found

    async def prune(self) -> None:
        now = time.time()
        await self._rows.prune(now - self._keep_arguments_seconds, now - self._keep_seconds)


def _channels(settings: Settings, on_close: OnClose) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for name, each in settings.approvals.webhooks.items():
        http = create_client(allow_private=each.allow_private, max_bytes=64 * 1024, route=outbound_route(settings))
        on_close(http.aclose)
        secret = each.secret.get_secret_value() if each.secret is not None else ""
        channels[f"webhook:{name}"] = WebhookChannel(each.url, secret, each.format, each.tenants, each.groups, http)
    if (smtp := settings.approvals.smtp) is not None:
        channels[EMAIL] = EmailChannel(
            smtp.host,
            smtp.port,
            smtp.security,
            smtp.sender,
            smtp.username,
            smtp.password.get_secret_value() if smtp.password is not None else "",
            smtp.recipients,
        )
    return channels
