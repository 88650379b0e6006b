"""The settings of this backend."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ImportString


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    min_confidence: float | None = Field(
        default=None, ge=0, le=1, description="Facts stated with less confidence than this are refused."
    )
    max_bytes: int = Field(
        default=1_073_741_824,
        gt=0,
        description="Bytes of changes, all of which are kept, beyond which a tenant's memory takes in nothing more.",
    )
    meaning: ImportString[Any] | None = Field(
        default=None,
        description="What finds entries by their meaning, as `package.module:name`: see `search.index.Meaning`.",
    )
