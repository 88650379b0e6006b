"""Gate `schema`: every artifact matches its JSON schema."""

import json
from collections.abc import Iterator

from backends.launch import json_schemas
from backends.launch.gates.context import Finding, GateContext


def check(context: GateContext) -> Iterator[Finding]:
    for path in sorted((context.worker.folder / "artifacts").glob("*.json")):
        location = f"artifacts/{path.name}"
        try:
            value = json.loads(path.read_bytes())
        except ValueError:
            yield Finding("GATE_SCHEMA_NOT_JSON", f"{path.name} is not JSON.", "blocker", location)
            continue
        name = json_schemas.schema_name(path.name)
        for problem in json_schemas.problems(name, value) if name else ():
            message = f"{path.name}: {problem['path'] or 'root'}: {problem['message']}"
            yield Finding("GATE_SCHEMA_INVALID", message, "blocker", location)
