"""Canonical JSON, SHA-256 digests and atomic file writes."""

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Encode as JSON with sorted keys and no whitespace, for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def pretty_json(value: Any) -> bytes:
    """Encode as indented JSON, for files that people also read."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


def digest(data: bytes) -> str:
    """Return the SHA-256 digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it, so that readers see the old content or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
