"""Reads artifacts and reports of a run by name. Names are checked before any file access."""

import base64
import os
from pathlib import Path
from typing import Final

from backends.launch.paths import ARTIFACT_NAME
from backends.launch.run import Run
from backends.launch.serialization import digest
from gateway.contract import Json
from gateway.errors import Fault, Kind

_FOLDERS: Final = ("artifacts", ".", "reports")
_ROOT_FILES: Final = frozenset({"run_config.yaml", "snapshot.json", "events.ndjson", "telemetry_outbox.jsonl"})
_CONTENT_TYPES: Final = {
    ".json": "application/json",
    ".yaml": "application/x-yaml",
    ".yml": "application/x-yaml",
    ".md": "text/markdown",
}

_BINARY_TYPES: Final = {".png": "image/png"}


def read(run: Run, name: str) -> Json:
    """Return name, content type, digest and content. Raises `INVALID_INPUT` when the run has no such artifact."""
    data = _read_bytes(run.folder, name) if ARTIFACT_NAME.fullmatch(name) else None
    if data is None:
        raise Fault(
            Kind.INVALID_INPUT,
            "The run has no such artifact.",
            details={"run_id": run.run_id, "artifact_name": name[:300]},
        )
    try:
        content, content_type = data.decode(), _CONTENT_TYPES.get(Path(name).suffix, "text/plain")
    except UnicodeDecodeError:
        kind = _BINARY_TYPES.get(Path(name).suffix, "application/octet-stream")
        content, content_type = base64.b64encode(data).decode(), f"{kind};base64"
    return {"name": name, "content_type": content_type, "sha256": digest(data), "content": content}


def _read_bytes(folder: Path, name: str) -> bytes | None:
    for subfolder in _FOLDERS:
        if subfolder == "." and name not in _ROOT_FILES:
            continue
        try:
            # The backend creates no symlinks in a run's folder, so a symlink there is never followed.
            handle = os.open(folder / subfolder / name, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        with os.fdopen(handle, "rb") as file:
            return file.read()
    return None
