"""Sections `limits`, `shares`, `streams` and `tasks`: rates, concurrent calls, open event streams, and tasks."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gateway.settings.base import Section
from gateway.settings.values import Count, Effect, Namespace, Seconds, problems, rate

Rate = Annotated[str, AfterValidator(rate)]
Dimension = Literal["tenant", "principal", "backend", "tool", "effect"]


class LimitRule(Section):
    """A rate limit in addition to `limits.calls`."""

    rate: Rate = Field(description="Allowed amount per time window, such as 100/minute.")
    per: tuple[Dimension, ...] = Field(
        default=("principal",), description="Dimensions that share one counter; must include tenant or principal."
    )
    backend: Namespace | None = Field(default=None, description="Only calls to this backend.")
    tool: str | None = Field(
        default=None, min_length=1, description="Only calls of this tool, by canonical id; * matches any text."
    )
    effects: tuple[Effect, ...] | None = Field(default=None, description="Only calls with one of these effects.")
    counts: Literal["calls", "cost"] = Field(default="calls", description="Whether a call counts as 1 or as its cost.")
    on_failure: Literal["closed", "local"] = Field(
        default="local",
        description="While Redis is unreachable: reject calls (closed), or count in each process (local).",
    )

    @model_validator(mode="after")
    def _check_per(self) -> "LimitRule":
        if not {"tenant", "principal"} & set(self.per):
            raise problems((("per",), "must include tenant or principal; tenants never share a counter"))
        return self


class LimitSettings(Section):
    """Rate limits of calls."""

    calls: Rate = Field(default="600/minute", description="Calls per principal.")
    api: Rate = Field(default="600/minute", description="Requests per IP address to the operator API.")
    rules: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,31}$")], LimitRule] = Field(
        default={}, description="Further limits, by name; a rejected call is not counted by the other limits."
    )
    costs: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="Cost of a call by canonical id or pattern; 1 by default."
    )
    cost_per_kilobyte: float = Field(
        default=0, ge=0, description="Cost of each kilobyte of a result, charged after the call."
    )


class ShareSettings(Section):
    """Concurrent calls of one tenant or principal at each backend, so that a burst does not starve the others."""

    per_tenant: Count = Field(default=64, description="Maximum concurrent calls of one tenant at one backend.")
    per_principal: Count = Field(default=32, description="Maximum concurrent calls of one principal at one backend.")
    waiting: int = Field(default=256, ge=0, description="Maximum queued calls; further calls are rejected.")


class StreamSettings(Section):
    """Limits on event streams and subscriptions open in one process."""

    per_principal: Count = Field(
        default=8, description="Maximum open streams per principal, `subscriptions/listen` included."
    )
    per_tenant: Count = Field(
        default=200, description="Maximum open streams per tenant, `subscriptions/listen` included."
    )
    per_process: Count = Field(
        default=2000, description="Maximum open streams in total, `subscriptions/listen` included."
    )


class TaskSettings(Section):
    """Calls that outlive the connection of their client."""

    tools: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Tools whose calls may become tasks, by canonical id; * matches any text, as in github.*.",
    )
    after: Seconds = Field(
        default=10, description="Seconds after which a call of a client of 2026-07-28 becomes a task."
    )
    deadline: Seconds = Field(
        default=3600, description="Timeout of a task in seconds, unless its tool has a longer one."
    )
    ttl: Seconds = Field(
        default=86400, description="Seconds from its creation for which a task and its result are kept."
    )
    per_principal: Count = Field(default=100, description="Maximum tasks of one principal that have not ended.")
    per_tenant: Count = Field(default=1000, description="Maximum tasks of one tenant that have not ended.")
    bytes_per_tenant: Count = Field(
        default=256 * 1024 * 1024, description="Maximum size of all that the tasks of one tenant keep."
    )
