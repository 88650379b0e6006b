"""The smaller sections: tenants, servers, names, catalogue, calls, audit, log, policies, console, database, bus."""

import re
import sys
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.settings.base import Section
from gateway.settings.shape import ShapeSection, ToolList, ToolListSettings
from gateway.settings.values import CallSeconds, Count, Seconds, Tree, problems


class TenantApprovalSettings(Section):
    """What approvers of a tenant see."""

    redact: tuple[str, ...] = Field(
        default=(),
        description="Arguments hidden from approvers: names at any depth or dotted paths, * matches any text.",
    )
    visible_to: tuple[str, ...] = Field(
        default=(), description="Groups whose members see hidden arguments; only they can approve such calls."
    )


class TenantSettings(Section):
    """Access of one tenant."""

    backends: tuple[str, ...] = Field(default=("*",), description="Backends the tenant may use; * means all.")
    servers: tuple[str, ...] = Field(default=("*",), description="Virtual servers the tenant may use; * means all.")
    read_only: bool = Field(default=False, description="Whether the tenant may use only tools that do not write.")
    approvals: TenantApprovalSettings = Field(
        default=TenantApprovalSettings(), description="What approvers of this tenant see."
    )

    def explicit_values(self) -> Tree:
        """The values that were set. The others stay as the operator set them at run time."""
        return self.model_dump(include=self.model_fields_set - {"approvals"})


class VirtualServer(ShapeSection):
    """A group of backends with its own endpoint, /mcp/{name}."""

    backends: tuple[str, ...] = Field(min_length=1, description="Namespaces of its backends.")
    names: Literal["underscore", "dotted", "bare"] = Field(
        default="underscore", description="How tools are named: namespace_tool, namespace.tool, or tool."
    )
    tools: ToolList = Field(
        default=ToolListSettings(),
        description="Its tools: a list of rules by canonical id, `search`, `auto`, or a mapping with both.",
    )


class NameSettings(Section):
    """Names of tools and prompts in lists."""

    max_length: int = Field(default=64, ge=32, description="Maximum length of a name that clients accept.")
    client_prefix_budget: int = Field(
        default=16, ge=0, description="Part of max_length reserved for prefixes that clients add."
    )

    @model_validator(mode="after")
    def _check_name_length(self) -> "NameSettings":
        if self.max_length - self.client_prefix_budget < 32:
            raise problems((("client_prefix_budget",), "leaves fewer than 32 characters of max_length for the name"))
        return self


class CatalogueSettings(Section):
    """Caching of the backends' lists."""

    ttl: Seconds = Field(default=60, description="Seconds between two reads of a backend's lists.")
    page_size: Count = Field(default=100, description="Items per page of a list.")
    keep_stale: float = Field(
        default=86400,
        ge=0,
        description="Seconds for which the tools of an unreachable backend stay listed, also after a restart.",
    )
    pins: Literal["warn", "deny", "off"] = Field(
        default="warn",
        description="How to handle a changed tool definition of a remote server: log it (warn), also deny calls until "
        "`gatehouse backends pin` accepts it (deny), or ignore it (off).",
    )


class CallSettings(Section):
    """Limits of one call."""

    deadline: CallSeconds = Field(default=60, description="Timeout in seconds of tools without their own timeout.")
    max_arguments_bytes: Count = Field(default=1024 * 1024, description="Maximum size of the arguments.")
    max_depth: Count = Field(default=32, description="Maximum nesting depth of the arguments.")
    max_keys: Count = Field(default=10_000, description="Maximum number of members and items in the arguments.")
    max_string: Count = Field(default=1024 * 1024, description="Maximum length of a string in the arguments.")
    max_result_bytes: Count = Field(default=8 * 1024 * 1024, description="Maximum size of a result.")


class AuditSettings(Section):
    """The audit log."""

    enabled: bool = Field(default=True, description="Whether calls are recorded.")
    durability: Literal["grouped", "intent", "strict"] = Field(
        default="intent",
        description="When records are committed: in groups, up to 50 ms after the response (grouped); those of calls "
        "that may write (effect 2 and 3, so remote tools unless their effects say otherwise) also before they are sent "
        "(intent); in addition all before the response, and flushed to the disk (strict).",
    )
    anchor_url: str | None = Field(
        default=None,
        pattern="^https?://",
        description="Where to POST the ends of the hash chains, once a minute while there are records.",
    )
    keep_days: float = Field(default=365, gt=0, description="Days after which records are deleted.")
    max_records: Count = Field(default=10_000_000, description="Maximum number of records; the oldest are deleted.")


class LogSettings(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity that is logged."
    )
    format: Literal["json", "text"] = Field(
        default_factory=lambda: "text" if sys.stderr.isatty() else "json",
        description="One JSON object per line, or text; by default text if standard error is a terminal.",
    )


class PolicySettings(Section):
    """Authorization policies, written in Cedar."""

    dir: Path | None = Field(
        default=None,
        description="Folder of the policies, by default those that ship; changes apply within two seconds.",
    )


_MEMBER = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/(user|service|group):[^\s/]{1,256}", re.ASCII)


def _check_member(value: str) -> str:
    if not _MEMBER.fullmatch(value):
        raise ValueError("expected a user or group such as default/user:alice or default/group:platform")
    return value


def _trace_url(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value.replace("{trace_id}", "0"))
    if "{trace_id}" not in value or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as https://jaeger.example.org/trace/{trace_id}")
    return value


class ConsoleSettings(Section):
    """The operator console at /console."""

    enabled: bool = Field(default=True, description="Whether the console is served.")

    organisation: tuple[Annotated[str, AfterValidator(_check_member)], ...] = Field(
        default=(),
        description="Users and groups that see all tenants with the scope mcp:admin, such as default/user:alice or "
        "default/group:platform; others see their own tenant, on loopback the owner sees all.",
    )
    trace_url: Annotated[str | None, AfterValidator(_trace_url)] = Field(
        default=None,
        description="URL template of an external trace viewer, with {trace_id}; by default no link is shown.",
    )
    client_id: str = Field(
        default="", description="Client id of the console at the identity provider, for auth.mode external."
    )
    client_secret: SecretStr | None = Field(default=None, description="Client secret of the console, if it has one.")
    client_secret_file: Path | None = Field(default=None, description="File that contains the client secret.")
    asks_for: tuple[str, ...] = Field(
        default=("mcp:admin",),
        min_length=1,
        description="Scopes that the console requests from the identity provider.",
    )


def _address_with_scheme(*schemes: str, example: str) -> AfterValidator:
    def check(value: SecretStr | None) -> SecretStr | None:
        if value is not None and urlsplit(value.get_secret_value()).scheme not in schemes:
            raise ValueError(f"expected an address such as {example}")
        return value

    return AfterValidator(check)


class DatabaseSettings(Section):
    """The database of the gateway and its modules."""

    url: Annotated[
        SecretStr | None,
        _address_with_scheme("postgresql", "postgres", example="postgresql://gatehouse@db.example.org/gatehouse"),
    ] = Field(
        default=None,
        description="URL of a PostgreSQL database (extra `postgres`); by default SQLite files in data_dir.",
    )
    url_file: Path | None = Field(default=None, description="File that contains the URL with its password.")
    connections: Count = Field(
        default=10, description="Size of the PostgreSQL connection pool that the modules of a process share."
    )


class BusSettings(Section):
    """Message bus between processes."""

    url: Annotated[
        SecretStr | None, _address_with_scheme("redis", "rediss", "unix", example="redis://redis.example.org:6379/0")
    ] = Field(
        default=None,
        description="URL of Redis or Valkey (extra `redis`); required for several workers or pods.",
    )
    url_file: Path | None = Field(default=None, description="File that contains the URL with its password.")
    prefix: str = Field(
        default="gatehouse",
        pattern="[a-z0-9-]{1,32}",
        description="Prefix of all keys, for a server shared with others.",
    )
