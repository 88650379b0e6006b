"""The settings of this backend."""

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    min_confidence: float | None = Field(
        default=None, ge=0, le=1, description="Facts stated with less confidence than this are refused."
    )
