"""`gatehouse import`: the servers of an MCP client's own file become entries of gatehouse.yaml."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.cli.failure import Failure, say
from gateway.cli.imports.clients import read_clients_file
from gateway.cli.imports.translate import Translated, translate
from gateway.cli.settings_file import SettingsFile, no_longer_served


def import_file(source: Path, config: Path | None, *, dry_run: bool, replace: bool, as_json: bool) -> None:
    file = SettingsFile(config)
    taken: set[str] = set()
    wanted = _once([translate(found, taken) for found in read_clients_file(source)])
    good = [each for each in wanted if not each.problem]
    there = [each.namespace for each in good if each.namespace in file.backends]
    if there and not replace:
        raise Failure(f"{file.path} has {', '.join(there)} already; --replace writes over them")
    lost = no_longer_served(file)
    for each in good:
        file.put(each.namespace, each.entry)
    if good and not dry_run:
        file.save()
    if as_json:
        print(
            json.dumps({"file": str(file.path), "written": bool(good) and not dry_run, **_as_object(wanted)}, indent=2)
        )
    else:
        _show(wanted, file.path, dry_run=dry_run)
        if lost and good:
            say(lost)
    if not good:
        raise Failure(f"{source}: nothing in it could be imported")


def _once(wanted: Sequence[Translated]) -> list[Translated]:
    """The same server under the same name in several projects is one."""
    seen: list[tuple[str, Any]] = []
    kept: list[Translated] = []
    for each in wanted:
        if (each.name, each.entry) not in seen:
            seen.append((each.name, each.entry))
            kept.append(each)
    return kept


def _as_object(wanted: Sequence[Translated]) -> dict[str, Any]:
    # Never the entries themselves: they may hold secrets.
    return {
        "imported": [
            {
                "name": each.name,
                "namespace": each.namespace,
                "kind": each.kind,
                "left_out": list(each.left_out),
                "notes": list(each.notes),
            }
            for each in wanted
            if not each.problem
        ],
        "refused": [{"name": each.name, "reason": each.problem} for each in wanted if each.problem],
    }


def _show(wanted: Sequence[Translated], path: Path, *, dry_run: bool) -> None:
    for each in wanted:
        if each.problem:
            say(f"{each.name} is not imported: {each.problem}")
            continue
        shown = each.namespace if each.namespace == each.name else f"{each.name} as {each.namespace}"
        print(f"{'would import' if dry_run else 'imported'} {shown} ({each.kind})")
        if each.left_out:
            print(f"  left out: {', '.join(each.left_out)}")
        for note in each.notes:
            print(f"  {note}")
    if not dry_run and any(not each.problem for each in wanted):
        print(f"{path} is written; `gatehouse serve` serves it")
