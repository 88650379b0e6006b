"""Approvers are notified by signed webhooks and by e-mail, with retries, and never with arguments."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from sqlalchemy import text
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from gateway.approvals.delivery import ApprovalNotifier
from gateway.contract.caller import ADMIN, DEFAULT_SCOPES
from tests.flows.approval_site import SECRET, ApprovalSite, approval_site, body_of, webhook_receiver

Json = dict[str, Any]


def hooked(url: str, **more: Any) -> Json:
    return {"approvals": {"webhooks": {"ops": {"url": url, "secret": SECRET, "allow_private": True, **more}}}}


async def received(queue: Any) -> tuple[dict[str, str], bytes]:
    return await asyncio.to_thread(queue.get, timeout=30)


@asynccontextmanager
async def retrying_at_once(site: ApprovalSite, attempts: int) -> AsyncIterator[ApprovalNotifier]:
    """A notifier with the channels of the site that waits for no retry."""
    found = site.gateway.app.approvals.notifier
    yield ApprovalNotifier(
        found._deliveries, found._rows, found._channels, found._link, retry_seconds=(0.0,) * attempts
    )


async def test_webhook_has_a_valid_signature_and_no_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        async with approval_site(tmp_path, **hooked(hook.url)) as site:
            error = await site.drop("secret-object")
            headers, body = await received(hook.received)
            id = error["details"]["approval_id"]
    verified = Verifier(SECRET).verify(body, headers)
    assert verified["type"] == "approval.requested"
    assert (verified["approval_id"], verified["tool"], verified["caller"]) == (id, "danger.drop", "user:alice")
    assert verified["url"].endswith(f"/console/approvals/{id}")
    assert b"secret-object" not in body
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body.replace(b"danger", b"harmless"), headers)


async def test_chat_webhook_is_one_text_with_escaped_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        async with approval_site(tmp_path, **hooked(hook.url, format="chat")) as site:
            mention = site.gateway.as_(await site.gateway.new_key(subject="<!channel>"))
            error = await site.drop("secret-object", gateway=mention)
            sent = body_of(await received(hook.received))
    assert sent == {
        "text": "user:&lt;!channel&gt; asks the group platform to approve a call of danger.drop. "
        + error["details"]["url"]
    }


async def test_webhook_of_another_tenant_or_group_stays_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        entry = {"url": hook.url, "secret": SECRET, "allow_private": True}
        webhooks = {
            "other": {**entry, "tenants": ["acme"]},
            "group": {**entry, "groups": ["security"]},
            "mine": {**entry, "tenants": ["def*"], "groups": ["platform"]},
        }
        async with approval_site(tmp_path, approvals={"webhooks": webhooks}) as site:
            await site.drop()
            await received(hook.received)
            names = site.gateway.app.approvals.notifier.channels_for("default", frozenset({"platform"}))
    assert names == ["webhook:mine"]


async def test_failed_webhook_is_retried_then_listed_as_undelivered_and_sent_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        hook.answers += [500, 503, 404]
        async with approval_site(tmp_path, **hooked(hook.url)) as site:
            error = await site.drop()
            await received(hook.received)  # the gateway's first attempt
            admin = await site.gateway.new_key(subject="ops", scopes=(*DEFAULT_SCOPES, ADMIN))
            assert (await site.api(admin, "GET", "/undelivered")).json() == {"undelivered": []}
            async with retrying_at_once(site, 2) as notifier, asyncio.timeout(30):
                # The gateway may make an attempt of its own in between.
                while not (letters := (await site.api(admin, "GET", "/undelivered")).json()["undelivered"]):
                    await make_due(site)
                    await notifier.send_due()
            (letter,) = letters
            assert (letter["channel"], letter["attempts"]) == ("webhook:ops", 3)
            assert letter["approval_id"] == error["details"]["approval_id"]
            assert letter["last_error"] == "The receiver answered HTTP 404."
            assert (await site.api(site.bob, "GET", "/undelivered")).status_code == 403
            while not hook.received.empty():
                hook.received.get()
            assert (await site.api(admin, "POST", f"/undelivered/{letter['id']}")).status_code == 200
            headers, body = await received(hook.received)
            Verifier(SECRET).verify(body, headers)
            assert headers["webhook-id"] == letter["id"]  # receivers recognise a repeated notification


async def make_due(site: ApprovalSite) -> None:
    """Wait until the failed attempt is recorded, then make the retry due."""
    database = site.gateway.app.database
    async with asyncio.timeout(30):
        while True:
            async with database.transaction() as connection:
                changed = await connection.execute(
                    text("UPDATE approval_deliveries SET next_at = 0 WHERE state = 'waiting' AND last_error <> ''")
                )
            if changed.rowcount:
                return
            await asyncio.sleep(0.02)


class Mailbox:
    """Receives messages for an SMTP server."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[tuple[list[str], bytes]] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.loop.call_soon_threadsafe(self.received.put_nowait, (envelope.rcpt_tos, envelope.content))
        return "250 OK"


async def test_email_goes_to_the_addresses_of_the_group_without_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mailbox = Mailbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Controller(mailbox, hostname="127.0.0.1", port=port)
    server.start()
    try:
        recipients = {"platform": ["team@example.org"], "default/platform": ["lead@example.org"], "other": ["x@y.org"]}
        smtp = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "gatehouse@example.org"}
        async with approval_site(tmp_path, approvals={"smtp": {**smtp, "recipients": recipients}}) as site:
            error = await site.drop("secret-object")
            async with asyncio.timeout(30):
                addresses, content = await mailbox.received.get()
    finally:
        server.stop()
    assert addresses == ["lead@example.org", "team@example.org"]
    message = message_from_bytes(content, policy=policy.default)
    assert message["Subject"] == "Approval requested: danger.drop"
    content_text = message.get_content()
    assert error["details"]["url"] in content_text
    assert "user:alice asks the group platform to approve a call of danger.drop." in content_text
    assert b"secret-object" not in content


async def test_a_decided_call_is_no_longer_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook_receiver() as hook:
        hook.answers.append(500)
        async with approval_site(tmp_path, **hooked(hook.url)) as site:
            id = (await site.drop())["details"]["approval_id"]
            await received(hook.received)
            await make_due(site)
            await site.decide(site.bob, id)
            async with retrying_at_once(site, 2) as notifier:
                await notifier.send_due()
        assert hook.received.empty()
