"""The backend's options, set by the operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    remotes: tuple[str, ...] = Field(
        default=("https://github.com/",), description="URL prefixes of https repositories that may be cloned."
    )
    local_roots: tuple[Path, ...] = Field(
        default=(), description="Folders with git repositories that runs may name by path or file:// URL."
    )
    site_repo_url: str = Field(
        default="https://github.com/Aspose/aspose.org",
        description="Repository of the Hugo site that quick starts write to.",
    )
    site_ref: str | None = Field(
        default=None, description="Commit of the site; by default HEAD at the time of cloning."
    )
    product_repo_url: str = Field(
        default="https://github.com/aspose-{family}-foss/Aspose.{Family}-FOSS-for-{Platform}",
        description="URL template of the product repository for a quick start from a product page.",
    )
    github_api: str | None = Field(
        default="https://api.github.com",
        description="GitHub API that quick starts query for repository data; null: clone the repository instead.",
    )
    github_clone_base: str = Field(
        default="https://github.com",
        description="Base URL that replaces https://github.com when a GitHub repository is cloned.",
    )
    github_token_env: str | None = Field(
        default=None, description="Environment variable that contains the GitHub API token."
    )
    commit_service: Literal["embedded", "http"] = Field(
        default="embedded", description="Commit with git on this machine, or through the run's commit service."
    )
    telemetry: Literal["local", "http"] = Field(
        default="local", description="Store telemetry in the run's folder only, or also post it to the run's endpoint."
    )
    endpoints: tuple[str, ...] = Field(
        default=(), description="URLs of commit and telemetry services that may be private or use plain http."
    )
    token_envs: tuple[str, ...] | dict[str, tuple[str, ...]] = Field(
        default=(),
        description="Environment variables that a run_config may name as a token, each with the URLs that may receive"
        " it. In a plain list, every token may be sent to all `endpoints`. Tokens are sent to no other URL.",
    )
    children: int = Field(
        default=4,
        gt=0,
        description="Maximum number of runs processed concurrently; one tenant gets at most half of them.",
    )
    max_open_runs: int = Field(
        default=100, gt=0, description="Maximum number of unfinished runs of one tenant; each keeps its clones on disk."
    )
    writers: int = Field(default=4, gt=0, description="Maximum number of sections of one run drafted concurrently.")
    work_seconds: float = Field(default=900, gt=0, description="Timeout of one work item in seconds.")
    max_repo_files: int = Field(
        default=20_000, gt=0, description="Maximum number of files read from a cloned repository."
    )
    max_file_bytes: int = Field(
        default=1_048_576,
        gt=0,
        description="Maximum size of a file read from a repository, in bytes; larger files are skipped.",
    )
    max_repo_bytes: int = Field(
        default=134_217_728,
        gt=0,
        description="Maximum bytes of one repository extracted to disk; a clone may fetch four times as much.",
    )
    writer: Literal["facts", "sampling", "llm"] = Field(
        default="facts",
        description="Who drafts prose: rules alone, the calling client's model inside launch_resume (the run waits in"
        " PLAN_READY for it), or the model of `llm_base_url`. Each draft must pass the truth gate.",
    )
    llm_base_url: str | None = Field(
        default=None, description="Base URL of an OpenAI-compatible endpoint; list it in `endpoints` if it is private."
    )
    llm_model: str = Field(default="", description="Model that the endpoint is asked for.")
    llm_key_env: str | None = Field(
        default=None, description="Environment variable with the endpoint's key; bind it to the URL in `token_envs`."
    )
    locales: tuple[str, ...] = Field(
        default=("en",),
        description="Locales that a run may ask for: the languages in which the product repositories are written.",
    )
    chromium: str | None = Field(
        default=None,
        description="Chromium executable, by name or path, that takes screenshots of a validated site; by default none"
        " are taken.",
    )
    confidence: float = Field(default=0.8, ge=0, le=1, description="Minimum confidence of an inferred field.")

    @model_validator(mode="after")
    def _require_url_for_each_token(self) -> "Options":
        if unbound := sorted(variable for variable, addresses in self.tokens.items() if not addresses):
            raise ValueError(
                f"token_envs: {', '.join(unbound)} has no URL; list the URLs of services in `endpoints`,"
                f" or next to the token as in `token_envs: {{{unbound[0]}: [https://commits.example]}}`"
            )
        return self

    @property
    def tokens(self) -> Mapping[str, tuple[str, ...]]:
        """The URLs that each token may be sent to, by environment variable."""
        value = self.token_envs
        return value if isinstance(value, dict) else dict.fromkeys(value, self.endpoints)
