"""A folder of policies as text: schema, the organisation's guards, the grants of each tenant, and their tests."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SCHEMA: Final = "schema.cedarschema"
ARGS: Final = "args.yaml"
_SUFFIXES: Final = (".cedar", ".cedarschema", ".yaml")
_DEEPEST: Final = 2
_PACKED: Final = Path(__file__).with_name("shipped")
SHIPPED: Final = _PACKED if _PACKED.is_dir() else Path(__file__).parents[2] / "policies"
"""The policies that came along: inside the package when installed, beside it in a clone."""

Stamp = tuple[tuple[str, int, int, int], ...]


class InvalidPolicies(Exception):
    """Policies that cannot be used; `lines` says where and why, one mistake each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policies of one tenant, or of all that have none of their own; by file."""

    policies: Mapping[str, str]
    args: Any = None
    args_file: str = ""


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Everything that a folder holds, read at one moment."""

    folder: Path
    schema: str
    org: Mapping[str, str]
    default: PolicySet
    tenants: Mapping[str, PolicySet]
    tests: Mapping[str, Any]
    version: str
    """A digest of all of it."""


def read(folder: Path) -> PolicySource:
    """Raises `BadPolicies` when the folder cannot be read or a YAML file of it is not YAML."""
    digest = hashlib.sha256()
    try:
        if not (folder / SCHEMA).is_file():
            raise InvalidPolicies(f"{folder}: there is no {SCHEMA}; start from a copy of {SHIPPED}")
        texts = {str(path.relative_to(folder)): path.read_text("utf-8") for path in _files(folder)}
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidPolicies(f"{folder}: {exc}") from exc
    for name, text in texts.items():
        digest.update(f"{name}\0{text}\0".encode())
    below = sorted({Path(name).parts[1] for name in texts if name.startswith("tenants/") and name.count("/") > 1})
    return PolicySource(
        folder=folder,
        schema=texts[SCHEMA],
        org=_cedar(texts, "org/"),
        default=_room(texts, "default/"),
        tenants={tenant: _room(texts, f"tenants/{tenant}/") for tenant in below},
        tests={name: _yaml(name, text) for name, text in texts.items() if name.startswith("tests/")},
        version=digest.hexdigest()[:12],
    )


def stamp(folder: Path) -> Stamp:
    """Differs after every edit of the folder; empty when it cannot be looked at."""
    try:
        stats = ((str(path), path.stat()) for path in _files(folder))
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats)
    except OSError:
        return ()


def _files(folder: Path) -> list[Path]:
    """In order. A mounted ConfigMap keeps each version in a hidden folder, and shows the present one by links."""
    found: list[Path] = []

    def fail(exc: OSError) -> None:
        raise exc

    for at, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        here = Path(at)
        # Deeper than tenants/NAME there is nothing of ours; a link to where it came from would never end.
        deep = len(here.relative_to(folder).parts) >= _DEEPEST
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        found += [here / name for name in names if not name.startswith(".") and Path(name).suffix in _SUFFIXES]
    return sorted(found)


def _cedar(texts: Mapping[str, str], under: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name.startswith(under) and name.endswith(".cedar")}


def _room(texts: Mapping[str, str], under: str) -> PolicySet:
    name = f"{under}{ARGS}"
    return PolicySet(_cedar(texts, under), _yaml(name, texts[name]) if name in texts else None, name)


def _yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise InvalidPolicies(f"{name}: {' '.join(str(exc).split())}") from exc
