"""The JSON schemas of everything a run reads and writes, compiled when first used."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from gateway.contract import Json

FOLDER: Final = Path(__file__).parent / "schemas"
_SHOWN: Final = 20


@cache
def schema(name: str) -> Json:
    return json.loads((FOLDER / f"{name}.schema.json").read_bytes())


@cache
def _validator(name: str) -> Any:
    return jsonschema_rs.validator_for(schema(name))


def problems(name: str, value: Any) -> list[Json]:
    """What keeps `value` from being one: `path` and `message` each, the first twenty."""
    found: list[Json] = []
    for error in _validator(name).iter_errors(value):
        path = "/".join(str(part) for part in error.instance_path)
        found.append({"path": path, "message": error.message[:300]})
        if len(found) == _SHOWN:
            break
    return found


def known(artifact: str) -> str | None:
    """The schema of an artifact by its file name, if it has one."""
    name = artifact.removesuffix(".json")
    return name if artifact.endswith(".json") and (FOLDER / f"{name}.schema.json").is_file() else None
