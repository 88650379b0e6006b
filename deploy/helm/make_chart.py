"""Generates the derived files of the chart: copies of shared files, values.schema.json and the table in the README.

`values.yaml` is the source. A comment that begins with `# --` describes the key below it; `# @schema` extends its
schema. A described key is a leaf. A key without a description is a section, which accepts only its own keys.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from gateway.settings import Settings

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "gatehouse"
TABLE: Final = "<!-- The table is written by `python deploy/helm/make_chart.py`. -->\n"

# Settings that the chart sets itself; values may not override them.
OWNED: Final = frozenset(
    {
        *("data_dir", "files_dir", "files_shared", "database.url", "database.url_file", "bus.url", "bus.url_file"),
        *("server.host", "server.port", "server.ops_port", "server.public_url", "server.allowed_hosts"),
        *("server.drain_grace", "server.drain_seconds", "policies.dir"),
    }
)


@dataclass(frozen=True)
class Value:
    """One key of values.yaml."""

    path: tuple[str, ...]
    description: str
    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return ".".join(self.path)


def described_values(text: str) -> Iterator[Value]:
    """Every key that has a description, in the order of the file."""
    open_keys: list[tuple[int, str]] = []
    description: list[str] = []
    schema: dict[str, Any] = {}
    for line in text.splitlines():
        comment = re.fullmatch(r"\s*# ?(.*)", line)
        key = re.match(r"( *)([A-Za-z]\w*):", line)
        if comment and comment[1].startswith("-- "):
            description = [comment[1][3:]]
        elif comment and comment[1].startswith("@schema "):
            schema = json.loads(comment[1][8:])
        elif comment and description:
            description.append(comment[1])
        elif key:
            depth = len(key[1])
            open_keys = [(at, name) for at, name in open_keys if at < depth] + [(depth, key[2])]
            if description:
                yield Value(tuple(name for _, name in open_keys), " ".join(description), schema)
            description, schema = [], {}
        elif not line.strip():
            description, schema = [], {}


def at(values: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        values = values[part]
    return values


def schema(values: Mapping[str, Any], known: Mapping[str, Value], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """The schema of a section, which accepts only its own keys."""
    properties: dict[str, Any] = {}
    for key, value in values.items():
        here = (*path, key)
        leaf = known.get(".".join(here))
        if leaf is None:
            properties[key] = schema(value, known, here)
        elif leaf.name == "config":
            properties[key] = {"description": leaf.description, **settings_schema(Settings, "")}
        else:
            properties[key] = {"description": leaf.description, **_type(value), **leaf.schema}
    # `global` is shared with the other charts of an umbrella chart, so it accepts any key.
    return {"type": "object", "additionalProperties": path == ("global",), "properties": properties}


def _type(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array"}
        case dict():
            return {"type": "object"}
        case _:
            raise TypeError(f"{value!r} needs a @schema")


def settings_schema(model: type[BaseModel], path: str) -> dict[str, Any]:
    """The schema of the gateway's settings. It checks only names: the gateway validates values with better messages."""
    properties: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        here = f"{path}{name}"
        if here in OWNED:
            continue
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            properties[name] = settings_schema(section, f"{here}.")
        else:
            properties[name] = {}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def table(values: Mapping[str, Any], known: Mapping[str, Value]) -> str:
    rows = [
        f"| `{value.name}` | `{json.dumps(at(values, value.path), ensure_ascii=False)}` | {_cell(value.description)} |"
        for value in known.values()
    ]
    return "\n".join(["| value | default | |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def shared_files() -> dict[str, bytes]:
    """Files of the chart that are copied from elsewhere in the repository."""
    observability = ROOT / "deploy" / "observability"
    found = {
        "files/otel-collector.yaml": ROOT / "otel-collector.yaml",
        "files/alerts.yaml": observability / "alerts.yaml",
    }
    for path in sorted((observability / "grafana" / "dashboards").glob("*.json")):
        found[f"files/dashboards/{path.name}"] = path
    policies = ROOT / "policies"
    for path in sorted(policies.rglob("*")):
        if path.suffix in (".cedar", ".cedarschema", ".yaml"):
            found[f"files/policies/{path.relative_to(policies).as_posix()}"] = path
    return {name: path.read_bytes() for name, path in found.items()}


def generated_files() -> dict[str, bytes]:
    """Every file of the chart that this script generates, by its path in the chart."""
    text = (CHART / "values.yaml").read_text("utf-8")
    values = yaml.safe_load(text)
    known = {value.name: value for value in described_values(text)}
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", **schema(values, known)}
    before, _, _ = (CHART / "README.md").read_text("utf-8").partition(TABLE)
    return {
        "values.schema.json": (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode(),
        "README.md": (before + TABLE + "\n" + table(values, known)).encode(),
        **shared_files(),
    }


def main() -> int:
    files = generated_files()
    for name, content in files.items():
        (CHART / name).parent.mkdir(parents=True, exist_ok=True)
        (CHART / name).write_bytes(content)
    for path in (CHART / "files").rglob("*"):
        if path.is_file() and path.relative_to(CHART).as_posix() not in files:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
