"""The launch can be taken back: the base and every path are on record. Asked of a release, advised in CI."""

from collections.abc import Iterator

from backends.launch import json_schemas
from backends.launch.gates.context import Finding, Subject


def check(subject: Subject) -> Iterator[Finding]:
    if subject.profile == "local":
        return
    severity = "blocker" if subject.profile == "prod" else "warn"
    where = "artifacts/rollback_metadata.json"
    if not subject.bench.has("rollback_metadata.json"):
        yield Finding("PR_ROLLBACK_METADATA_MISSING", "There is no rollback metadata.", severity, where)
        return
    metadata = subject.bench.read("rollback_metadata.json")
    if json_schemas.problems("rollback_metadata", metadata) or metadata["run_id"] != subject.bench.run_id:
        yield Finding("PR_ROLLBACK_METADATA_INVALID", "The rollback metadata is not this run's.", severity, where)
