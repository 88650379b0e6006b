"""Artifacts by name. A name that could be anything but a file of the run's own never reaches the disk."""

import base64
import os
from pathlib import Path
from typing import Final

from backends.launch.paths import ARTIFACT
from backends.launch.run import Run
from backends.launch.serialization import digest
from gateway.contract import Json
from gateway.errors import Fault, Kind

_PLACES: Final = ("artifacts", ".", "reports")
_AT_ROOT: Final = frozenset({"run_config.yaml", "snapshot.json", "events.ndjson", "telemetry_outbox.jsonl"})
_TYPES: Final = {
    ".json": "application/json",
    ".yaml": "application/x-yaml",
    ".yml": "application/x-yaml",
    ".md": "text/markdown",
}


def read(run: Run, name: str) -> Json:
    """Raises `INVALID_INPUT` when the run has no such artifact."""
    data = _bytes(run.folder, name) if ARTIFACT.fullmatch(name) else None
    if data is None:
        raise Fault(
            Kind.INVALID_INPUT,
            "The run has no such artifact.",
            details={"run_id": run.run_id, "artifact_name": name[:300]},
        )
    try:
        content, kind = data.decode(), _TYPES.get(Path(name).suffix, "text/plain")
    except UnicodeDecodeError:
        content, kind = base64.b64encode(data).decode(), "application/octet-stream;base64"
    return {"name": name, "content_type": kind, "sha256": digest(data), "content": content}


def _bytes(folder: Path, name: str) -> bytes | None:
    for place in _PLACES:
        if place == "." and name not in _AT_ROOT:
            continue
        try:
            # A link in the run's folder can only be another hand's.
            handle = os.open(folder / place / name, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        with os.fdopen(handle, "rb") as file:
            return file.read()
    return None
