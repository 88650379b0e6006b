"""What an operator may set for launches."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    remotes: tuple[str, ...] = Field(
        default=("https://github.com/",), description="Beginnings of the https URLs that may be cloned."
    )
    local_roots: tuple[Path, ...] = Field(
        default=(), description="Folders whose git repositories may be named by path or file:// URL."
    )
    site_repo_url: str = Field(
        default="https://github.com/Aspose/aspose.org", description="The Hugo site that quick starts write to."
    )
    site_ref: str | None = Field(default=None, description="Its commit; by default HEAD at the time of cloning.")
    product_repo_url: str = Field(
        default="https://github.com/aspose-{family}-foss/Aspose.{Family}-FOSS-for-{Platform}",
        description="The repository of a product that a quick start names only by its page.",
    )
    github_api: str | None = Field(
        default="https://api.github.com",
        description="Where quick starts ask about repositories; null: they clone to find out.",
    )
    github_clone_base: str = Field(
        default="https://github.com", description="Where repositories that GitHub URLs name are cloned from."
    )
    github_token_env: str | None = Field(default=None, description="Environment variable with a token for that API.")
    commit_service: Literal["embedded", "http"] = Field(
        default="embedded", description="Commit with git on this machine, or through the run's commit service."
    )
    telemetry: Literal["local", "http"] = Field(
        default="local", description="Keep telemetry with the run, or also post it to the run's endpoint."
    )
    endpoints: tuple[str, ...] = Field(
        default=(), description="Addresses of commit and telemetry services that may be private or plain http."
    )
    token_envs: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        default=(),
        description="Environment variables that a run_config may name as a token, each with the addresses it is for;"
        " a mere list of them is for all of `endpoints`. A token goes nowhere else.",
    )
    children: int = Field(
        default=4, gt=0, description="Runs that are worked on at the same time; one tenant has at most half of them."
    )
    max_open_runs: int = Field(
        default=100, gt=0, description="Runs of one tenant that have not ended; each keeps its clones on disk."
    )
    writers: int = Field(default=4, gt=0, description="Sections of one run that are drafted at the same time.")
    work_seconds: float = Field(default=900, gt=0, description="The longest that one work item may take.")
    max_repo_files: int = Field(default=20_000, gt=0, description="Files of a cloned repository that are read.")
    max_file_bytes: int = Field(default=1_048_576, gt=0, description="Larger files of a repository are left out.")
    max_repo_bytes: int = Field(
        default=134_217_728,
        gt=0,
        description="Bytes of one repository that are written out; four times that may be fetched.",
    )
    confidence: float = Field(default=0.8, ge=0, le=1, description="What an inferred field must reach.")

    @model_validator(mode="after")
    def _each_token_has_an_address(self) -> "Options":
        if lost := sorted(variable for variable, addresses in self.tokens.items() if not addresses):
            raise ValueError(
                f"token_envs: {', '.join(lost)} would be sent to nobody; name the addresses of services in"
                f" `endpoints`, or beside the token as in `token_envs: {{{lost[0]}: [https://commits.example]}}`"
            )
        return self

    @property
    def tokens(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses that each token may be sent to."""
        given = self.token_envs
        return given if isinstance(given, dict) else dict.fromkeys(given, self.endpoints)
