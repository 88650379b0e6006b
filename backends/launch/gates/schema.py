"""Every artifact is what its schema says."""

import json
from collections.abc import Iterator

from backends.launch import json_schemas
from backends.launch.gates.context import Finding, Subject


def check(subject: Subject) -> Iterator[Finding]:
    for path in sorted((subject.bench.folder / "artifacts").glob("*.json")):
        where = f"artifacts/{path.name}"
        try:
            value = json.loads(path.read_bytes())
        except ValueError:
            yield Finding("GATE_SCHEMA_NOT_JSON", f"{path.name} is not JSON.", "blocker", where)
            continue
        name = json_schemas.known(path.name)
        for wrong in json_schemas.problems(name, value) if name else ():
            message = f"{path.name}: {wrong['path'] or 'root'}: {wrong['message']}"
            yield Finding("GATE_SCHEMA_INVALID", message, "blocker", where)
