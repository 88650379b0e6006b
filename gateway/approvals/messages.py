"""Notifications about held calls: tool, caller and link, never arguments. Built for webhooks and e-mail."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final, Literal

import msgspec

from gateway.contract import Json

_MAX_TEXT: Final = 200
WebhookFormat = Literal["json", "chat"]


@dataclass(frozen=True, slots=True)
class ApprovalNotice:
    """What a notification says."""

    id: str
    approval_id: str
    tenant: str
    tool: str
    caller: str
    groups: tuple[str, ...]
    reason: str
    expires_at: float
    url: str

    def sentence(self) -> str:
        group = " and ".join(self.groups)
        return f"{_plain(self.caller)} asks the group {group} to approve a call of {_plain(self.tool)}."


def webhook_body(notice: ApprovalNotice, format: WebhookFormat) -> bytes:
    """The body of a webhook: an object with all fields, or one text that Slack and Teams show."""
    if format == "chat":
        text = _escape_chat(notice.sentence())
        return msgspec.json.encode({"text": f"{text} {notice.url}".rstrip()})
    body: Json = {
        "type": "approval.requested",
        "id": notice.id,
        "approval_id": notice.approval_id,
        "tenant": notice.tenant,
        "tool": notice.tool,
        "caller": notice.caller,
        "groups": list(notice.groups),
        "reason": notice.reason,
        "expires_at": notice.expires_at,
        "url": notice.url,
    }
    return msgspec.json.encode(body)


def sign_webhook(secret: str, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a signed webhook, as https://www.standardwebhooks.com specifies them."""
    signature = hmac.new(_key(secret), f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def email_message(notice: ApprovalNotice, sender: str, recipients: tuple[str, ...]) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = f"Approval requested: {_plain(notice.tool)}"
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Auto-Submitted"] = "auto-generated"
    lines = [notice.sentence(), "", f"Tenant: {_plain(notice.tenant)}", f"Why: {_plain(notice.reason) or '-'}"]
    if notice.url:
        lines += ["", f"Decide at {notice.url}"]
    message.set_content("\n".join(lines) + "\n")
    return message


def _key(secret: str) -> bytes:
    """The secret's bytes; the prefix `whsec_` marks base64, as in Standard Webhooks."""
    if secret.startswith("whsec_"):
        return base64.b64decode(secret.removeprefix("whsec_"))
    return secret.encode()


def _plain(text: str) -> str:
    """One line of bounded length: names may come from other systems."""
    return "".join(each if each.isprintable() else " " for each in text)[:_MAX_TEXT]


def _escape_chat(text: str) -> str:
    """Slack reads these three characters as markup, such as links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
