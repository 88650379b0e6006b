"""Gate `rollback`: rollback metadata exists and is valid. Required for `prod`, a warning in `ci`."""

from collections.abc import Iterator

from backends.launch import json_schemas
from backends.launch.gates.context import Finding, GateContext


def check(context: GateContext) -> Iterator[Finding]:
    if context.profile == "local":
        return
    severity = "blocker" if context.profile == "prod" else "warn"
    location = "artifacts/rollback_metadata.json"
    if not context.worker.has("rollback_metadata.json"):
        yield Finding("PR_ROLLBACK_METADATA_MISSING", "There is no rollback metadata.", severity, location)
        return
    metadata = context.worker.read("rollback_metadata.json")
    if json_schemas.problems("rollback_metadata", metadata) or metadata["run_id"] != context.worker.run_id:
        yield Finding("PR_ROLLBACK_METADATA_INVALID", "The rollback metadata is not this run's.", severity, location)
