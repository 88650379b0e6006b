"""Section `approvals`: bounds, retention and notifications of calls that wait for the approval of other people."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from gateway.settings.base import Section
from gateway.settings.values import Count, Namespace, Port, WebAddress, problems


class ApprovalWebhook(Section):
    """A signed webhook that announces calls that wait for approval."""

    url: WebAddress = Field(description="URL of the receiver.")
    secret: SecretStr | None = Field(default=None, description="Secret of the signature, at least 16 characters.")
    secret_file: Path | None = Field(default=None, description="File that contains the secret.")
    format: Literal["json", "chat"] = Field(
        default="json", description="An object with all fields (json), or one text for Slack and Teams (chat)."
    )
    tenants: tuple[str, ...] = Field(default=("*",), description="Tenants whose approvals are announced; * means all.")
    groups: tuple[str, ...] = Field(default=("*",), description="Approver groups that are notified; * means all.")
    allow_private: bool = Field(default=False, description="Whether the receiver may be in a private network.")

    @model_validator(mode="after")
    def _check_secret(self) -> "ApprovalWebhook":
        if self.secret is None:
            raise problems((("secret",), "set secret or secret_file; receivers check the signature with it"))
        if len(self.secret.get_secret_value()) < 16:
            raise problems((("secret",), "needs at least 16 characters"))
        return self


class SmtpSettings(Section):
    """The mail server for notifications."""

    host: str = Field(min_length=1, description="Host name of the mail server.")
    port: Port = Field(default=587, description="Port of the mail server.")
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="Encryption: STARTTLS, TLS from the start, or none."
    )
    sender: str = Field(min_length=3, description="Sender address of the messages.")
    username: str = Field(default="", description="User name at the mail server; empty: no sign-in.")
    password: SecretStr | None = Field(default=None, description="Password at the mail server.")
    password_file: Path | None = Field(default=None, description="File that contains the password.")
    recipients: dict[str, tuple[str, ...]] = Field(
        default={}, description="Addresses by approver group, or by tenant/group for one tenant."
    )


class ApprovalSettings(Section):
    """Approval by other people, which policies require with @approval."""

    max_waiting_per_principal: Count = Field(default=20, description="Maximum waiting calls of one principal.")
    max_waiting_per_tenant: Count = Field(default=200, description="Maximum waiting calls of one tenant.")
    max_arguments_bytes: Count = Field(
        default=64 * 1024, description="Maximum size of the arguments of a call that can be approved."
    )
    max_grants_per_principal: Count = Field(default=100, description="Maximum active grants of one principal.")
    keep_days: Annotated[float, Field(gt=0)] = Field(
        default=90, description="Days after which approvals and their decisions are deleted."
    )
    keep_arguments_hours: Annotated[float, Field(ge=0)] = Field(
        default=24, description="Hours after which the arguments of a call that ran, was denied or expired are erased."
    )
    webhooks: dict[Namespace, ApprovalWebhook] = Field(default={}, description="Webhooks for approvers, by name.")
    smtp: SmtpSettings | None = Field(default=None, description="Mail server for approvers; by default no e-mail.")
