"""Delivery of notifications: signed webhooks and e-mail, with retries. A notification that fails for good is kept.

Any process may send any notification; the database hands each to one of them.
"""

import asyncio
import json
import logging
import smtplib
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol

import httpx

from gateway.approvals.messages import ApprovalNotice, WebhookFormat, email_message, sign_webhook, webhook_body
from gateway.errors import Fault
from gateway.state.approval_deliveries import ApprovalDeliveries, ApprovalDelivery
from gateway.state.approval_rows import ApprovalRow, ApprovalRows

log = logging.getLogger("gatehouse.approvals")

EMAIL: Final = "email"
RETRY_SECONDS: Final = (10.0, 60.0, 300.0, 1800.0, 7200.0)
"""Delays between attempts. After the last one the notification is a dead letter."""
_POLL_SECONDS: Final = 5.0
_SMTP_SECONDS: Final = 20.0


class DeliveryError(Exception):
    """A notification was not accepted. The text is shown to operators and contains no secret."""


class Channel(Protocol):
    """Sends notifications to one receiver."""

    def serves(self, tenant: str, groups: frozenset[str]) -> bool:
        """Whether approvals of this tenant by one of these groups are announced here."""
        ...

    async def send(self, notice: ApprovalNotice) -> None:
        """Send one notification. Raises `DeliveryError`."""
        ...


@dataclass(frozen=True, slots=True)
class WebhookChannel:
    """A webhook with a shared secret."""

    url: str
    secret: str
    format: WebhookFormat
    tenants: tuple[str, ...]
    groups: tuple[str, ...]
    http: httpx.AsyncClient
    clock: Callable[[], float] = time.time

    def serves(self, tenant: str, groups: frozenset[str]) -> bool:
        return any(fnmatchcase(tenant, each) for each in self.tenants) and any(
            fnmatchcase(group, each) for group in groups for each in self.groups
        )

    async def send(self, notice: ApprovalNotice) -> None:
        body = webhook_body(notice, self.format)
        headers = sign_webhook(self.secret, notice.id, int(self.clock()), body)
        try:
            answer = await self.http.post(
                self.url, content=body, headers={**headers, "content-type": "application/json"}
            )
        except Fault as fault:
            raise DeliveryError(fault.message) from fault
        if not answer.is_success:
            raise DeliveryError(f"The receiver answered HTTP {answer.status_code}.")


@dataclass(frozen=True, slots=True)
class EmailChannel:
    """E-mail to the addresses of the approver groups, by tenant and group (`tenant/group`, or `group` for all)."""

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    sender: str
    username: str
    password: str
    recipients: Mapping[str, Sequence[str]]

    def serves(self, tenant: str, groups: frozenset[str]) -> bool:
        return bool(self._addresses(tenant, groups))

    async def send(self, notice: ApprovalNotice) -> None:
        addresses = self._addresses(notice.tenant, frozenset(notice.groups))
        message = email_message(notice, self.sender, addresses)
        try:
            await asyncio.to_thread(self._send, message)
        except (OSError, smtplib.SMTPException) as exc:
            raise DeliveryError(f"The mail server refused the message: {type(exc).__name__}.") from exc

    def _addresses(self, tenant: str, groups: frozenset[str]) -> tuple[str, ...]:
        keys = [key for group in sorted(groups) for key in (f"{tenant}/{group}", group)]
        return tuple(dict.fromkeys(address for key in keys for address in self.recipients.get(key, ())))

    def _send(self, message: object) -> None:
        context = ssl.create_default_context()
        kind = smtplib.SMTP_SSL if self.security == "tls" else smtplib.SMTP
        options = {"context": context} if self.security == "tls" else {}
        with kind(self.host, self.port, timeout=_SMTP_SECONDS, **options) as server:  # type: ignore[arg-type]
            if self.security == "starttls":
                server.starttls(context=context)
            if self.username:
                server.login(self.username, self.password)
            server.send_message(message)  # type: ignore[arg-type]


class ApprovalNotifier:
    """Sends the notifications of held calls. Run `run` in the background; `wake` starts a round at once."""

    def __init__(
        self,
        deliveries: ApprovalDeliveries,
        rows: ApprovalRows,
        channels: Mapping[str, Channel],
        link: Callable[[str], str],
        *,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deliveries = deliveries
        self._rows = rows
        self._channels = channels
        self._link = link
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._woken = asyncio.Event()

    def channels_for(self, tenant: str, groups: frozenset[str]) -> list[str]:
        """The names of the channels to notify."""
        return [name for name, channel in self._channels.items() if channel.serves(tenant, groups)]

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        if not self._channels:
            return
        while True:
            self._woken.clear()
            try:
                sent = await self.send_due()
            except Exception:  # the task must survive a database outage
                log.exception("approvals: sending notifications failed; retry in %g s", _POLL_SECONDS)
                sent = 0
            if not sent:
                try:
                    await asyncio.wait_for(self._woken.wait(), self._poll_seconds())
                except TimeoutError:
                    continue

    async def send_due(self) -> int:
        """Send the notifications that are due; return how many were tried."""
        claimed = await self._deliveries.claim(self._clock())
        await asyncio.gather(*map(self._deliver, claimed))
        return len(claimed)

    def _poll_seconds(self) -> float:
        return min(_POLL_SECONDS, *self._retry_seconds) if self._retry_seconds else _POLL_SECONDS

    async def _deliver(self, delivery: ApprovalDelivery) -> None:
        channel, row = self._channels.get(delivery.channel), await self._rows.get(delivery.tenant, delivery.approval_id)
        if row is None or row.state != "waiting" or row.expires_at <= self._clock():
            await self._deliveries.finish(delivery.id)  # no one needs to decide any more
            return
        if channel is None:
            await self._deliveries.fail(delivery.id, "This channel is no longer configured.", None)
            return
        try:
            await channel.send(self._notice(delivery, row))
        except DeliveryError as exc:
            await self._retry(delivery, str(exc))
        except Exception:  # a defect must not stop the other notifications
            log.exception("approvals: notification %s to %s failed", delivery.id, delivery.channel)
            await self._retry(delivery, "An internal error; see the log.")
        else:
            await self._deliveries.finish(delivery.id)

    async def _retry(self, delivery: ApprovalDelivery, error: str) -> None:
        attempt = delivery.attempts + 1
        last = attempt > len(self._retry_seconds)
        log.warning(
            "approvals: notification %s to %s not delivered (attempt %d), %s: %s",
            delivery.id,
            delivery.channel,
            attempt,
            "it is a dead letter now" if last else f"retry in {self._retry_seconds[attempt - 1]:g} s",
            error,
        )
        retry_at = None if last else self._clock() + self._retry_seconds[attempt - 1]
        await self._deliveries.fail(delivery.id, error, retry_at)

    def _notice(self, delivery: ApprovalDelivery, row: ApprovalRow) -> ApprovalNotice:
        return ApprovalNotice(
            id=delivery.id,
            approval_id=row.id,
            tenant=row.tenant,
            tool=row.tool,
            caller=row.principal.partition("/")[2],
            groups=tuple(str(group) for group, _ in json.loads(row.requirement)),
            reason=row.reason,
            expires_at=row.expires_at,
            url=self._link(row.id),
        )
