"""What an operator decides of this backend."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[str, ...] = Field(
        default=("projects",),
        min_length=1,
        description="Folders that projects may lie in: relative ones lie in each tenant's own folder, absolute ones"
        " belong to the tenant `default` unless they name {tenant}.",
    )
    godot_path: str | None = Field(
        default=None, description="The engine's program; found on PATH unless given; empty: no engine."
    )
    allow_dangerous_ops: bool = Field(
        default=False, description="Whether files may be deleted and renamed, and projects rewritten whole."
    )
    allow_external_tools: bool = Field(
        default=False, description="Whether a caller may name another engine by godotPath."
    )
    sandbox: Literal["auto", "require", "off"] = Field(
        default="auto",
        description="Walls around the engine, in which projects' own code runs: those that this machine has, all of"
        " them or no engine at all, or none. Not around engines that open windows.",
    )
    engine_reads: tuple[Path, ...] = Field(
        default=(),
        description="Further folders that engines may read: an engine that lies in several places, shared assets.",
    )
    engine_memory_mb: int = Field(default=4096, ge=0, description="Memory one engine may take; 0: as much as it likes.")
    game_network: bool = Field(default=False, description="Whether projects that run may use the network.")
    windowed: bool = Field(default=False, description="Whether games and editors open windows on this machine.")
    bridge_url: str = Field(
        default="ws://127.0.0.1:8080/bridge/godot",
        description="Where editors connect to; written into the settings of the add-on.",
    )
    max_workers: int = Field(default=4, ge=1, le=16, description="Engines kept warm, one for each project in use.")
    max_queue: int = Field(default=50, ge=1, description="Operations that may wait for one project's engine.")
    task_timeout: float = Field(default=30, gt=0, le=3600, description="Seconds one engine operation may take.")
    idle_timeout: float = Field(default=60, gt=0, description="Seconds an unused engine is kept warm.")
    debug_lines: int = Field(default=1000, ge=10, description="Lines kept of a running project's output.")
    audit_max_bytes: int = Field(
        default=5 * 1024 * 1024, ge=1024, description="Size at which a project's audit.log is set aside."
    )
    audit_backups: int = Field(default=3, ge=0, description="Number of set-aside audit logs kept.")

    def program(self) -> Path | None:
        """The engine's path as given; None to search for it."""
        return Path(self.godot_path) if self.godot_path else None
