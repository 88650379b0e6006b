"""`gatehouse backends`: add, remove and list entries of gatehouse.yaml, and query the health of a running gateway."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gateway.cli.check import entry_of
from gateway.cli.failure import FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError, say
from gateway.cli.load_settings import ELSEWHERE, api_address, read_without_backends
from gateway.cli.settings_file import SettingsFile, no_longer_served
from gateway.contract import Json

_TIMEOUT: Final = httpx.Timeout(10, connect=5)


# ---- changing the file ----


def add(namespace: str, entry: Json, config: Path | None, *, replace: bool, as_json: bool) -> None:
    kinds = [key for key in ("command", "url", "module") if entry.get(key)]
    if len(kinds) != 1:
        raise CommandError("say what it is: --url ADDRESS, --module MODULE, or a command after --", code=2)
    file = SettingsFile(config)
    if namespace in file.backends and not replace:
        raise CommandError(f"{file.path} has {namespace} already; --replace writes over it")
    lost = no_longer_served(file)
    file.put(namespace, {key: value for key, value in entry.items() if value})
    file.save()
    if as_json:
        print(json.dumps({"namespace": namespace, "kind": kinds[0], "file": str(file.path)}))
    else:
        print(f"{namespace} is in {file.path}; a running gateway serves it within a moment")
        if unset := file.unset(namespace):
            say(f"set {', '.join(unset)} where the gateway and these commands run; one that runs is started anew")
        if lost:
            say(lost)


def remove(namespace: str, config: Path | None) -> None:
    file = SettingsFile(config)
    if namespace not in file.backends:
        known = ", ".join(file.backends) or "none"
        raise CommandError(f"{file.path} names no backend {namespace} (it names: {known})")
    file.drop(namespace)
    file.save()
    print(f"{namespace} is no longer in {file.path}; calls under way are finished")


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """`NAME=VALUE` as often as given. A refused one is not shown: it may hold a secret."""
    found: dict[str, str] = {}
    for position, text in enumerate(given or (), 1):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{option} number {position} is not NAME=VALUE", code=2)
        found[name.strip()] = value.strip()
    return found


# ---- showing ----


def list_backends(config: Path | None, url: str | None, token: str | None, as_json: bool) -> None:
    if url is None:
        settings = read_without_backends(config)
        rows: list[Json] = [asdict(entry_of(ns, entry)) for ns, entry in settings.backends.items()]
        for namespace, names in settings.absent.items():
            say(f"warning: backends.{namespace}: {', '.join(names)} is not set here")
    else:
        rows = running(api_address(url, config), token)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif url is None:
        _table(rows, ("namespace", "kind", "target", "served"))
    else:
        _table([_flat(row) for row in rows], ("namespace", "kind", "state", "eras", "tools", "breaker", "trouble"))


def running(base: str, token: str | None) -> list[Json]:
    """What the operator's API at that address says of the backends. Raises `Failure`."""
    address = f"{base}/api/v1/backends"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(address, headers=headers, timeout=_TIMEOUT, trust_env=False)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        raise CommandError(f"cannot reach {address}: {exc}; check --url", code=UNREACHABLE) from exc
    match answer.status_code:
        case 200:
            return answer.json()["backends"]
        case 401:
            raise CommandError(f"{address} wants a token; give --token or set GATEHOUSE_TOKEN", code=UNAUTHENTICATED)
        case 403:
            made = "gatehouse key create --subject NAME --scope mcp:admin"
            raise CommandError(
                f"this token may not see the backends; `{made}` makes one that may", code=UNAUTHENTICATED
            )
        case 404:
            raise CommandError(f"{base} has no operator's API; {ELSEWHERE}", code=FAILED)
        case status:
            raise CommandError(f"{address} answered with HTTP {status}; check --url", code=FAILED)


def _flat(row: Json) -> Json:
    trouble = [row["last_error"]] if row.get("last_error") and row["state"] != "up" else []
    trouble += ["degraded"] if row["degraded"] else []
    trouble += [f"{len(row['quarantined'])} quarantined"] if row["quarantined"] else []
    return {**row, "eras": " ".join(row["eras"]), "trouble": ", ".join(trouble)}


def _table(rows: Sequence[Json], columns: Sequence[str]) -> None:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(_shown(row[column])) for column in columns))
    Console().print(table)


def _shown(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else str(value)
