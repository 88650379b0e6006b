"""The settings of the workflow backend."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backends.gox.action import MAX_AGE
from backends.workflow.definition import Limits


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    max_concurrent_runs: int = Field(default=8, ge=1, description="Runs of one tenant at a time.")
    max_steps: int = Field(default=64, ge=1, description="Steps of one workflow.")
    max_logs_per_run: int = Field(default=256, ge=1, description="Log lines kept of a run; the oldest go first.")
    default_step_timeout: float = Field(default=30.0, gt=0, description="Seconds for a step that names none.")
    max_step_timeout: float = Field(default=300.0, gt=0, description="Most seconds that a step may name.")
    max_attempts: int = Field(default=5, ge=1, description="Most attempts that a step may name.")
    max_backoff: float = Field(default=30.0, gt=0, description="Most seconds between two attempts.")
    max_input_bytes: int = Field(
        default=1_048_576, ge=1, description="Bytes that outputs of earlier steps may add to a step's arguments."
    )
    max_kept_bytes: int = Field(
        default=4_194_304, ge=1, description="Bytes of outputs that a run keeps for its later steps."
    )
    retention_max_runs: int = Field(default=1000, ge=1, description="Ended runs kept of one tenant.")
    retention_ttl: float = Field(default=86_400.0, gt=0, le=MAX_AGE, description="Seconds an ended run is kept.")
    on_restart: Literal["resume", "fail"] = Field(
        default="resume", description="What becomes of a run that was running when the gateway stopped."
    )

    @model_validator(mode="after")
    def _default_within_most(self) -> "Options":
        if self.default_step_timeout > self.max_step_timeout:
            raise ValueError("default_step_timeout is more than max_step_timeout")
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
