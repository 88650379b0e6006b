"""`gatehouse backends`: add, remove and list entries of gatehouse.yaml, and query the health of a running gateway."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import httpx
from rich.markup import escape
from rich.table import Table

from gateway.cli.check import describe_entry
from gateway.cli.failure import FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError, print_stderr
from gateway.cli.load_settings import OPS_PORT_HINT, api_url, read_settings_leniently
from gateway.cli.output import open_output
from gateway.cli.settings_file import CLIENT_TRUST, CLIENT_TRUST_NOTICE, SettingsFile, default_backends_notice
from gateway.contract import Json

_TIMEOUT: Final = httpx.Timeout(10, connect=5)


# ---- edit the settings file ----


def add(namespace: str, entry: Json, config: Path | None, *, replace: bool, as_json: bool) -> None:
    kinds = [key for key in ("command", "url", "module") if entry.get(key)]
    if len(kinds) != 1:
        raise CommandError("give exactly one of --url ADDRESS, --module MODULE, or a command after --", code=2)
    file = SettingsFile(config)
    if namespace in file.backends and not replace:
        raise CommandError(f"{file.path} already contains {namespace}; --replace overwrites it")
    notice = default_backends_notice(file)
    written = {key: value for key, value in entry.items() if value}
    if kinds[0] != "module":
        written["trust"] = CLIENT_TRUST
    file.put(namespace, written)
    file.save()
    if as_json:
        print(
            json.dumps(
                {"namespace": namespace, "kind": kinds[0], "trust": written.get("trust"), "file": str(file.path)}
            )
        )
    else:
        print(f"added {namespace} to {file.path}; a running gateway picks it up within seconds")
        if kinds[0] != "module":
            print(CLIENT_TRUST_NOTICE)
        if unset := file.unset_variables(namespace):
            print_stderr(f"set {', '.join(unset)} in the environment of the gateway, then restart the gateway")
        if notice:
            print_stderr(notice)


def remove(namespace: str, config: Path | None) -> None:
    file = SettingsFile(config)
    if namespace not in file.backends:
        known = ", ".join(file.backends) or "none"
        raise CommandError(f"{file.path} contains no backend {namespace} (known: {known})")
    file.remove(namespace)
    file.save()
    print(f"removed {namespace} from {file.path}; calls in progress are completed")


def parse_pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parse `NAME=VALUE` options. An invalid value is not shown in the error: it may hold a secret."""
    found: dict[str, str] = {}
    for position, text in enumerate(values or (), 1):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{option} number {position} is not NAME=VALUE", code=2)
        found[name.strip()] = value.strip()
    return found


# ---- list ----


def list_backends(config: Path | None, url: str | None, token: str | None, as_json: bool) -> None:
    if url is None:
        settings = read_settings_leniently(config)
        rows: list[Json] = [asdict(describe_entry(ns, entry)) for ns, entry in settings.backends.items()]
        for namespace, names in settings.missing_variables.items():
            print_stderr(f"warning: backends.{namespace}: {', '.join(names)} is not set in this environment")
    else:
        rows = fetch_running(api_url(url, config), token)
    if as_json:
        print(json.dumps(rows, indent=2))
    elif url is None:
        _table(rows, ("namespace", "kind", "target", "served", "trust"))
    else:
        _table(
            [_table_row(row) for row in rows], ("namespace", "kind", "state", "eras", "tools", "breaker", "problems")
        )


def fetch_running(base: str, token: str | None) -> list[Json]:
    """Read the backends from the operator API. Raises `CommandError`."""
    address = f"{base}/api/v1/backends"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        response = httpx.get(address, headers=headers, timeout=_TIMEOUT, trust_env=False)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        raise CommandError(f"cannot reach {address}: {exc}; check --url", code=UNREACHABLE) from exc
    match response.status_code:
        case 200:
            return response.json()["backends"]
        case 401:
            raise CommandError(f"{address} requires a token; give --token or set GATEHOUSE_TOKEN", code=UNAUTHENTICATED)
        case 403:
            command = "gatehouse key create --subject NAME --scope mcp:admin"
            raise CommandError(
                f"this token lacks the scope mcp:admin; create a key with `{command}`", code=UNAUTHENTICATED
            )
        case 404:
            raise CommandError(f"{base} has no operator API; {OPS_PORT_HINT}", code=FAILED)
        case status:
            raise CommandError(f"{address} returned HTTP {status}; check --url", code=FAILED)


def _table_row(row: Json) -> Json:
    problems = [row["last_error"]] if row.get("last_error") and row["state"] != "up" else []
    problems += ["degraded"] if row["degraded"] else []
    problems += [f"{len(row['quarantined'])} quarantined"] if row["quarantined"] else []
    return {**row, "eras": " ".join(row["eras"]), "problems": ", ".join(problems)}


def _table(rows: Sequence[Json], columns: Sequence[str]) -> None:
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    open_output().print(table)


def _cell(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else str(value)
