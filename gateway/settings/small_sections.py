"""The smaller sections, each a few plain fields.

`policies:`, who may do what.

`console:`, the operator's page.

`database:` and `bus:`, where what must outlive a process, or pass between processes, is kept.
"""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.settings.base import Section
from gateway.settings.values import CallSeconds, Count, Seconds, Tree, problems


class TenantSettings(Section):
    """What one tenant may see."""

    backends: tuple[str, ...] = Field(default=("*",), description="Namespaces the tenant may use; * is all of them.")
    servers: tuple[str, ...] = Field(
        default=("*",), description="Virtual servers the tenant may enter; * is all of them."
    )
    read_only: bool = Field(default=False, description="Whether tools that write are withheld.")

    def stated(self) -> Tree:
        """What was written down; the rest stays as an operator left it."""
        return self.model_dump(include=self.model_fields_set)


class VirtualServer(Section):
    """Some backends under an address of their own, /mcp/{name}."""

    backends: tuple[str, ...] = Field(min_length=1, description="Namespaces it serves.")
    names: Literal["underscore", "dotted", "bare"] = Field(
        default="underscore", description="How tools are named: namespace_tool, namespace.tool, or tool."
    )


class NameSettings(Section):
    """The names that clients see."""

    max_length: int = Field(default=64, ge=32, description="Longest name that clients accept.")
    client_prefix_budget: int = Field(
        default=16, ge=0, description="Part of max_length left for prefixes that clients add."
    )

    @model_validator(mode="after")
    def _room(self) -> "NameSettings":
        if self.max_length - self.client_prefix_budget < 32:
            raise problems((("client_prefix_budget",), "leaves fewer than 32 characters of max_length for the name"))
        return self


class CatalogueSettings(Section):
    """What is remembered of the backends' lists."""

    ttl: Seconds = Field(default=60, description="Seconds until a backend's lists are read again.")
    page_size: Count = Field(default=100, description="Entries in one page of a list.")
    keep_stale: float = Field(
        default=86400, ge=0, description="Seconds a dead backend's tools stay listed, also after a restart."
    )
    pins: Literal["warn", "deny", "off"] = Field(
        default="warn",
        description="What a change in the definition of a remote server's tool does: it is logged; or also denied until"
        " `gatehouse backends pin` accepts it.",
    )


class CallSettings(Section):
    """Bounds of one call."""

    deadline: CallSeconds = Field(default=60, description="Seconds a call may take unless its tool says otherwise.")
    max_arguments_bytes: Count = Field(default=1024 * 1024, description="Largest arguments.")
    max_depth: Count = Field(default=32, description="Objects and lists within each other in the arguments.")
    max_keys: Count = Field(default=10_000, description="Members and items of the arguments, all told.")
    max_string: Count = Field(default=1024 * 1024, description="Characters of the longest text in the arguments.")
    max_result_bytes: Count = Field(default=8 * 1024 * 1024, description="Largest result.")


class AuditSettings(Section):
    """The record of who did what."""

    enabled: bool = Field(default=True, description="Whether calls are recorded.")
    durability: Literal["grouped", "strict"] = Field(
        default="grouped", description="Whether an answer waits until its record is committed, which is `strict`."
    )
    keep_days: float = Field(default=365, gt=0, description="Days after which records are let go.")
    max_records: Count = Field(default=10_000_000, description="Records kept at most; the oldest are let go.")


class LogSettings(Section):
    """What the process says of itself on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe message shown."
    )
    format: Literal["json", "text"] = Field(
        default_factory=lambda: "text" if sys.stderr.isatty() else "json",
        description="One JSON object a line, or text; text by default when standard error is a terminal.",
    )


class PolicySettings(Section):
    """Who may do what, as Cedar policies."""

    dir: Path | None = Field(
        default=None,
        description="Folder of the policies, whose edits apply at once; those that came along unless given.",
    )


_WHO = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/(user|service|group):[^\s/]{1,256}", re.ASCII)


def _who(given: str) -> str:
    if not _WHO.fullmatch(given):
        raise ValueError("expected a person or group such as default/user:alice or default/group:platform")
    return given


def _trace_url(given: str | None) -> str | None:
    if given is None:
        return None
    parts = urlsplit(given.replace("{trace_id}", "0"))
    if "{trace_id}" not in given or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as https://jaeger.example.org/trace/{trace_id}")
    return given


class ConsoleSettings(Section):
    """The operator's page at /console."""

    enabled: bool = Field(default=True, description="Whether the console is served.")

    organisation: tuple[Annotated[str, AfterValidator(_who)], ...] = Field(
        default=(),
        description="Who sees every tenant with the scope mcp:admin, such as default/user:alice or "
        "default/group:platform; others see their own, and the owner of the only machine that is served sees all.",
    )
    trace_url: Annotated[str | None, AfterValidator(_trace_url)] = Field(
        default=None, description="Where a trace is shown elsewhere, with {trace_id} in it; no link unless given."
    )
    client_id: str = Field(
        default="", description="Client that the console is at your identity provider, for auth.mode external."
    )
    client_secret: SecretStr | None = Field(default=None, description="Its secret, if it has one.")
    client_secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    asks_for: tuple[str, ...] = Field(
        default=("mcp:admin",), min_length=1, description="Scopes that the console asks your identity provider for."
    )


def _of(*schemes: str, example: str) -> AfterValidator:
    def check(given: SecretStr | None) -> SecretStr | None:
        if given is not None and urlsplit(given.get_secret_value()).scheme not in schemes:
            raise ValueError(f"expected an address such as {example}")
        return given

    return AfterValidator(check)


class DatabaseSettings(Section):
    """Where the gateway's tables and its modules' are kept."""

    url: Annotated[
        SecretStr | None, _of("postgresql", "postgres", example="postgresql://gatehouse@db.example.org/gatehouse")
    ] = Field(
        default=None,
        description="PostgreSQL database for all of them (extra `postgres`); SQLite files in data_dir unless given.",
    )
    url_file: Path | None = Field(default=None, description="File that holds the address, with its password.")
    connections: Count = Field(default=10, description="Connections to PostgreSQL that the modules of a process share.")


class BusSettings(Section):
    """How several processes tell each other things."""

    url: Annotated[SecretStr | None, _of("redis", "rediss", "unix", example="redis://redis.example.org:6379/0")] = (
        Field(
            default=None,
            description="Redis or Valkey (extra `redis`); one process needs none, several workers or pods do.",
        )
    )
    url_file: Path | None = Field(default=None, description="File that holds the address, with its password.")
    prefix: str = Field(
        default="gatehouse", pattern="[a-z0-9-]{1,32}", description="First word of every key, where others use it too."
    )
