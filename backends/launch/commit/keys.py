"""Deterministic idempotency keys of a run's commit service requests, stable across crashes."""

import hashlib
import uuid


def idempotency_key(run_id: str, operation: str) -> str:
    """Derive a key in UUIDv4 format from the run and the operation."""
    raw = bytearray(hashlib.sha256(f"{run_id}:{operation}".encode()).digest()[:16])
    return str(uuid.UUID(bytes=bytes(raw), version=4))
