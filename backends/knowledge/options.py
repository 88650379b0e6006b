"""The options of the knowledge backend."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ImportString, field_validator


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
    semantic: Literal["minilm", "wordllama"] | bool | None = Field(
        default=None,
        description="Find entries by meaning: with the model of the extra `semantic` (minilm) or `semantic-light`"
        " (wordllama). Default: with the better of those that are installed.",
    )
    vector_cache_bytes: int = Field(
        default=67_108_864,
        ge=0,
        description="Maximum bytes of vectors held in memory, for all tenants. A larger memory is searched from disk.",
    )
    languages: tuple[str, ...] = Field(
        default=("english",),
        max_length=4,
        description="Languages whose word forms a search finds, such as `english` or `german`.",
    )
    meaning: ImportString[Any] | None = Field(
        default=None,
        description="Semantic search implementation, as `package.module:name`: see `search.index.SemanticSearch`.",
    )

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # Imported here: the stemmers of all languages, which a start with the default does not need.
        from backends.knowledge.search.word_forms import LANGUAGES

        if unknown := sorted(set(value) - LANGUAGES):
            raise ValueError(f"unknown language {unknown[0]!r}; known are {', '.join(sorted(LANGUAGES))}")
        return value
