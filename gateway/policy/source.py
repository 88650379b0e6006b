"""Reads a policy folder: the schema, the guards for all tenants (`org/`), the policies of tenants, and their tests."""

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
_MAX_DEPTH: Final = 2
_PACKAGED: Final = Path(__file__).with_name("shipped")
SHIPPED: Final = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "policies"
"""The default policies: inside the package if installed, next to it in a source checkout."""

FolderStamp = tuple[tuple[str, int, int, int], ...]


class InvalidPolicies(Exception):
    """Policies that cannot be loaded. `lines` has one problem each, with its location."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Policy texts by file name, of one tenant or of the default for tenants without their own."""

    policies: Mapping[str, str]
    args: Any = None
    args_file: str = ""


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The content of a policy folder."""

    folder: Path
    schema: str
    org: Mapping[str, str]
    default: PolicySet
    tenants: Mapping[str, PolicySet]
    tests: Mapping[str, Any]
    version: str
    """Digest of the content."""


def read_folder(folder: Path) -> PolicySource:
    """Read a folder. Raises `InvalidPolicies` if it cannot be read or contains invalid YAML."""
    digest = hashlib.sha256()
    try:
        if not (folder / SCHEMA).is_file():
            raise InvalidPolicies(f"{folder}: {SCHEMA} is missing; start from a copy of {SHIPPED}")
        texts = {str(path.relative_to(folder)): path.read_text("utf-8") for path in _files(folder)}
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidPolicies(f"{folder}: {exc}") from exc
    for name, text in texts.items():
        digest.update(f"{name}\0{text}\0".encode())
    tenants = sorted({Path(name).parts[1] for name in texts if name.startswith("tenants/") and name.count("/") > 1})
    return PolicySource(
        folder=folder,
        schema=texts[SCHEMA],
        org=_cedar(texts, "org/"),
        default=_policy_set(texts, "default/"),
        tenants={tenant: _policy_set(texts, f"tenants/{tenant}/") for tenant in tenants},
        tests={name: _yaml(name, text) for name, text in texts.items() if name.startswith("tests/")},
        version=digest.hexdigest()[:12],
    )


def folder_stamp(folder: Path) -> FolderStamp:
    """Return a value that changes with every edit of the folder; empty if it cannot be read."""
    try:
        stats = ((str(path), path.stat()) for path in _files(folder))
        return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats)
    except OSError:
        return ()


def _files(folder: Path) -> list[Path]:
    """List the policy files, sorted. Skips hidden folders: a mounted ConfigMap keeps its versions there."""
    found: list[Path] = []

    def fail(exc: OSError) -> None:
        raise exc

    for at, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        here = Path(at)
        # There is nothing below tenants/NAME; the limit also stops symbolic link loops.
        deep = len(here.relative_to(folder).parts) >= _MAX_DEPTH
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        found += [here / name for name in names if not name.startswith(".") and Path(name).suffix in _SUFFIXES]
    return sorted(found)


def _cedar(texts: Mapping[str, str], under: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name.startswith(under) and name.endswith(".cedar")}


def _policy_set(texts: Mapping[str, str], under: str) -> PolicySet:
    name = f"{under}{ARGS}"
    return PolicySet(_cedar(texts, under), _yaml(name, texts[name]) if name in texts else None, name)


def _yaml(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise InvalidPolicies(f"{name}: {' '.join(str(exc).split())}") from exc
