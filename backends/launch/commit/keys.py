"""Idempotency keys of a run's requests: the same after a crash as before it."""

import hashlib
import uuid


def idempotency_key(run_id: str, operation: str) -> str:
    """A UUIDv4 in form, derived from the run and what is asked."""
    raw = bytearray(hashlib.sha256(f"{run_id}:{operation}".encode()).digest()[:16])
    return str(uuid.UUID(bytes=bytes(raw), version=4))
