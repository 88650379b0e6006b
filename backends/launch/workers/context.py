"""The context of a worker: the run's folder and settings as input, files and events as output."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.launch import json_schemas
from backends.launch.serialization import digest, pretty_json, write_atomic
from gateway.contract import Json
from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Input and output of one work item."""

    run_id: str
    folder: Path
    config: Json
    limits: Json
    """The operator's options that limit the work."""
    scope: str = "run"
    written: list[Json] = field(default_factory=list[Json])
    """Files written by the worker, each with `name`, `path`, `sha256` and `schema_id`."""
    events: list[Json] = field(default_factory=list[Json])
    """Events to record in the journal, each with `type` and `payload`."""
    result: Json = field(default_factory=dict[str, Any])
    """The parameters of the item before it runs, and its result afterwards."""

    @property
    def site(self) -> Path:
        return self.folder / "work" / "site"

    @property
    def repo(self) -> Path:
        return self.folder / "work" / "repo"

    def has(self, artifact: str) -> bool:
        return (self.folder / "artifacts" / artifact).is_file()

    def read(self, artifact: str) -> Any:
        return json.loads((self.folder / "artifacts" / artifact).read_bytes())

    def write(self, artifact: str, value: Any) -> None:
        """Write an artifact. Raises `SCHEMA_VALIDATION_FAILED` if it does not match its schema."""
        name = json_schemas.schema_name(artifact)
        if name is not None and (problems := json_schemas.problems(name, value)):
            raise Fault(
                Kind.INVALID_INPUT,
                f"{artifact} would not match its schema.",
                code="SCHEMA_VALIDATION_FAILED",
                details={"artifact_name": artifact, "errors": problems},
            )
        self.write_file(f"artifacts/{artifact}", pretty_json(value), artifact, f"launch:{name}" if name else "")

    def write_file(self, path: str, data: bytes, name: str, schema_id: str = "") -> None:
        """Write a file at a path relative to the run's folder."""
        write_atomic(self.folder / path, data)
        self.written.append({"name": name, "path": path, "sha256": digest(data), "schema_id": schema_id})

    def emit(self, kind: str, **payload: Any) -> None:
        """Add an event for the journal."""
        self.events.append({"type": kind, "payload": payload})
