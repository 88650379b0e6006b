"""The JSON schemas of run configurations, artifacts and requests, compiled on first use."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from gateway.contract import Json

FOLDER: Final = Path(__file__).parent / "schemas"
_MAX_PROBLEMS: Final = 20


@cache
def schema(name: str) -> Json:
    return json.loads((FOLDER / f"{name}.schema.json").read_bytes())


@cache
def _validator(name: str) -> Any:
    return jsonschema_rs.validator_for(schema(name))


def problems(name: str, value: Any) -> list[Json]:
    """Validate `value` and return the first twenty errors, each with `path` and `message`."""
    found: list[Json] = []
    for error in _validator(name).iter_errors(value):
        path = "/".join(str(part) for part in error.instance_path)
        found.append({"path": path, "message": error.message[:300]})
        if len(found) == _MAX_PROBLEMS:
            break
    return found


def schema_name(artifact: str) -> str | None:
    """Return the name of an artifact's schema, or None if it has no schema."""
    name = artifact.removesuffix(".json")
    return name if artifact.endswith(".json") and (FOLDER / f"{name}.schema.json").is_file() else None
