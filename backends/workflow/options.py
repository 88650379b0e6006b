"""The settings of the workflow backend."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backends.gox.action import MAX_RECORD_AGE
from backends.workflow.definition import Limits


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    max_concurrent_runs: int = Field(default=8, ge=1, description="Maximum concurrent runs per tenant.")
    max_steps: int = Field(default=64, ge=1, description="Maximum steps per workflow.")
    max_logs_per_run: int = Field(default=256, ge=1, description="Maximum log lines per run; the oldest are dropped.")
    default_step_timeout: float = Field(default=30.0, gt=0, description="Timeout in seconds of a step that sets none.")
    max_step_timeout: float = Field(default=300.0, gt=0, description="Maximum timeout in seconds that a step may set.")
    max_attempts: int = Field(default=5, ge=1, description="Maximum attempts that a step may set.")
    max_backoff: float = Field(default=30.0, gt=0, description="Maximum seconds between two attempts.")
    max_input_bytes: int = Field(
        default=1_048_576, ge=1, description="Maximum bytes that references may insert into a step's arguments."
    )
    max_items: int = Field(default=100, ge=1, description="Maximum items that forEach goes through.")
    max_kept_bytes: int = Field(default=4_194_304, ge=1, description="Maximum bytes of step outputs stored per run.")
    retention_max_runs: int = Field(default=1000, ge=1, description="Maximum finished runs kept per tenant.")
    retention_ttl: float = Field(
        default=86_400.0, gt=0, le=MAX_RECORD_AGE, description="Seconds that a finished run is kept."
    )
    on_restart: Literal["resume", "fail"] = Field(
        default="resume", description="Whether to resume or fail a run that was interrupted by a gateway stop."
    )

    @model_validator(mode="after")
    def _check_default_timeout(self) -> "Options":
        if self.default_step_timeout > self.max_step_timeout:
            raise ValueError("default_step_timeout is greater than max_step_timeout")
        return self

    @property
    def limits(self) -> Limits:
        return Limits(
            max_steps=self.max_steps,
            default_timeout=self.default_step_timeout,
            max_timeout=self.max_step_timeout,
            max_attempts=self.max_attempts,
            max_backoff=self.max_backoff,
        )
