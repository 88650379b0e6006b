"""Options of the godot backend, set under `backends.<name>.options`."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[str, ...] = Field(
        default=("projects",),
        min_length=1,
        description="Folders that may contain projects. Relative paths are resolved in each tenant's own folder;"
        " absolute paths belong to the tenant `default` unless they contain {tenant}.",
    )
    profile: Literal["core", "full"] = Field(
        default="full",
        description="Which tools are listed. `core`: the 25 that make a game, for clients with a small context;"
        " `full`: all.",
    )
    godot_path: str | None = Field(
        default=None, description="Path of the Godot executable. Default: `godot` on PATH. Empty: no engine."
    )
    allow_dangerous_ops: bool = Field(
        default=False, description="Allow operations that delete, rename or convert files and rewrite whole projects."
    )
    allow_external_tools: bool = Field(
        default=False, description="Allow callers to select another engine with godotPath."
    )
    sandbox: Literal["auto", "require", "off"] = Field(
        default="auto",
        description="Isolation of engine processes, which run the projects' code. `auto`: every isolation that this"
        " machine supports; `require`: refuse to run unless all are supported; `off`: resource limits only."
        " Engines with windows are never isolated.",
    )
    engine_reads: tuple[Path, ...] = Field(
        default=(),
        description="Additional folders that engines may read, such as an engine installed in several folders or"
        " shared assets.",
    )
    engine_memory_mb: int = Field(
        default=4096, ge=0, description="Maximum memory of one engine process in MiB; 0 for no limit."
    )
    game_network: bool = Field(default=False, description="Allow running projects to use the network.")
    windowed: bool = Field(default=False, description="Open games and editors in windows on this machine.")
    bridge_url: str = Field(
        default="ws://127.0.0.1:8080/bridge/godot",
        description="WebSocket URL that editors connect to; written into the settings of the add-on.",
    )
    max_workers: int = Field(
        default=4, ge=1, le=16, description="Maximum number of engine processes kept running, one per project in use."
    )
    max_queue: int = Field(default=50, ge=1, description="Maximum number of operations queued for one engine.")
    task_timeout: float = Field(default=30, gt=0, le=3600, description="Timeout of one engine operation in seconds.")
    idle_timeout: float = Field(default=60, gt=0, description="Seconds after which an idle engine is stopped.")
    debug_lines: int = Field(default=1000, ge=10, description="Output lines buffered for each running project.")
    audit_max_bytes: int = Field(
        default=5 * 1024 * 1024, ge=1024, description="Size at which a project's audit.log is rotated."
    )
    audit_backups: int = Field(default=3, ge=0, description="Number of rotated audit logs to keep.")

    def program(self) -> Path | None:
        """Return the configured engine path, or None to search for it."""
        return Path(self.godot_path) if self.godot_path else None
