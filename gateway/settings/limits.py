"""`limits:`, how much may be asked for, and by whom."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gateway.settings.base import Section
from gateway.settings.values import Count, Effect, Namespace, problems, rate

Rate = Annotated[str, AfterValidator(rate)]
Dimension = Literal["tenant", "principal", "backend", "tool", "effect"]


class LimitRule(Section):
    """One limit beside `limits.calls`."""

    rate: Rate = Field(description="How much in which time, such as 100/minute.")
    per: tuple[Dimension, ...] = Field(
        default=("principal",), description="What shares one count; tenant or principal is always part of it."
    )
    backend: Namespace | None = Field(default=None, description="Only calls to this backend.")
    tool: str | None = Field(
        default=None, min_length=1, description="Only calls of this tool, by canonical id; * matches any part."
    )
    effects: tuple[Effect, ...] | None = Field(default=None, description="Only calls with one of these effects.")
    counts: Literal["calls", "cost"] = Field(default="calls", description="Whether each call counts 1 or its cost.")
    on_failure: Literal["closed", "local"] = Field(
        default="local",
        description="While Redis is away: refuse, or let each process count for itself.",
    )

    @model_validator(mode="after")
    def _of_someone(self) -> "LimitRule":
        if not {"tenant", "principal"} & set(self.per):
            raise problems((("per",), "name tenant or principal: a count is never shared between tenants"))
        return self


class LimitSettings(Section):
    """How much may be asked for."""

    calls: Rate = Field(default="600/minute", description="Calls of one principal.")
    api: Rate = Field(default="600/minute", description="Requests of one address to the operator's API.")
    rules: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,31}$")], LimitRule] = Field(
        default={}, description="More limits, by name; a call that one refuses takes nothing from the others."
    )
    costs: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="Cost of a call by canonical id or pattern; 1 unless given."
    )
    cost_per_kilobyte: float = Field(
        default=0, ge=0, description="Cost of each kilobyte of a result, charged once it is known."
    )


class ShareSettings(Section):
    """What one tenant or principal may have under way at each backend, so that no burst starves the others."""

    per_tenant: Count = Field(default=64, description="Calls of one tenant under way at one backend.")
    per_principal: Count = Field(default=32, description="Calls of one principal under way at one backend.")
    waiting: int = Field(default=256, ge=0, description="Calls that may wait for their turn; more are refused.")


class StreamSettings(Section):
    """Event streams and subscriptions that may be open in one process."""

    per_principal: Count = Field(default=8, description="Streams of one principal.")
    per_tenant: Count = Field(default=200, description="Streams of one tenant.")
    per_process: Count = Field(default=2000, description="Streams in all.")
