"""Shared code of the Gox backends: actions, the result envelope, idempotency, and the run log."""
