"""What a worker works on: the run's folder and settings, and the outputs it leaves."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.launch import json_schemas
from backends.launch.serialization import digest, pretty, write_whole
from gateway.contract import Json
from gateway.errors import Fault, Kind


@dataclass(frozen=True, slots=True)
class Bench:
    run_id: str
    folder: Path
    config: Json
    limits: Json
    """The operator's options that bound the work."""
    scope: str = "run"
    written: list[Json] = field(default_factory=list[Json])
    """What was left: `name`, `path`, `sha256`, `schema_id` each."""
    news: list[Json] = field(default_factory=list[Json])
    """Events to be recorded with the work: `type` and `payload`."""
    result: Json = field(default_factory=dict[str, Any])
    """What the one who asked for the work wants to know."""

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
        """An artifact, which must be what its schema says."""
        name = json_schemas.known(artifact)
        if name is not None and (wrong := json_schemas.problems(name, value)):
            raise Fault(
                Kind.INVALID_INPUT,
                f"{artifact} would not be what its schema says.",
                code="SCHEMA_VALIDATION_FAILED",
                details={"artifact_name": artifact, "errors": wrong},
            )
        self.leave(f"artifacts/{artifact}", pretty(value), artifact, f"launch:{name}" if name else "")

    def leave(self, path: str, data: bytes, name: str, schema_id: str = "") -> None:
        """A file of the run, by its path inside the run's folder."""
        write_whole(self.folder / path, data)
        self.written.append({"name": name, "path": path, "sha256": digest(data), "schema_id": schema_id})

    def say(self, kind: str, **payload: Any) -> None:
        self.news.append({"type": kind, "payload": payload})
