"""The options of the knowledge backend."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ImportString


class Options(BaseModel):
    """Parsed from `backends.<name>.options` when the gateway starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_confidence: float | None = Field(
        default=None, ge=0, le=1, description="Minimum confidence of a fact; facts below it are rejected."
    )
    max_bytes: int = Field(
        default=1_073_741_824,
        gt=0,
        description="Maximum bytes of recorded changes per tenant. Beyond it, only deletes and undo are accepted.",
    )
    meaning: ImportString[Any] | None = Field(
        default=None,
        description="Semantic search implementation, as `package.module:name`: see `search.index.SemanticSearch`.",
    )
