"""`gatehouse accounts`: a user's accounts, by the API of a running gateway. `gatehouse vault`: the stored tokens."""

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
from rich.markup import escape
from rich.table import Table

from gateway.accounts.store import AccountStore
from gateway.accounts.vault import Vault
from gateway.cli.commands import resolve_endpoint
from gateway.cli.failure import FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.cli.identity_db import IdentityDatabase, with_identity_database
from gateway.cli.output import open_output
from gateway.wiring.accounts import load_master_keys

WAIT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 1.0


def list_accounts(url: str | None, token: str | None, config: Path | None, *, everyone: bool, as_json: bool) -> None:
    rows = _request("GET", "", url, token, config, params={"all": "true"} if everyone else {})
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("backend", "principal", "state", "scopes", "last used", box=None, pad_edge=False)
    for row in rows:
        state = "reconnect needed" if row["state"] == "reconnect" else row["state"]
        cells = (row["backend"], row["principal"], state, " ".join(row["scopes"]) or "-", _date(row["used_at"]))
        table.add_row(*map(escape, cells))
    open_output().print(table if rows else "No server here asks for an account of your own.")


def connect(backend: str, url: str | None, token: str | None, config: Path | None, *, key_stdin: bool) -> None:
    if key_stdin:
        _request("PUT", f"/{backend}/key", url, token, config, json={"key": sys.stdin.readline().strip()})
        print(f"{backend} is connected.")
        return
    before = _connected_at(backend, url, token, config)
    link = _request("POST", f"/{backend}/link", url, token, config)["url"]
    print(f"Open this page in a browser and sign in:\n\n  {link}\n", flush=True)
    deadline = time.monotonic() + WAIT_SECONDS
    while _connected_at(backend, url, token, config) in (None, before):
        if time.monotonic() > deadline:
            raise CommandError(f"{backend} was not connected in time; run the command again")
        time.sleep(_POLL_SECONDS)
    print(f"{backend} is connected.")


def disconnect(backend: str, principal: str | None, url: str | None, token: str | None, config: Path | None) -> None:
    params = {} if principal is None else {"principal": principal}
    _request("DELETE", f"/{backend}", url, token, config, params=params)
    print(f"{backend} is disconnected.")


def rotate(config: Path | None, as_json: bool) -> None:
    """Seal everything again: a new data key per tenant, sealed by the current master key."""

    async def work(identity: IdentityDatabase) -> dict[str, int]:
        keys = load_master_keys(identity.settings.vault, identity.settings.data_dir / "secrets")
        vault = Vault(identity.database, keys)
        store = AccountStore(identity.database, vault)
        sealed: dict[str, int] = {}
        for tenant in await vault.tenants():
            fresh = await vault.add_key(tenant)
            if tenant:
                sealed[tenant] = await store.reseal(tenant)
                # A process that had just chosen the old key may have written after the first pass.
                await store.reseal(tenant)
            else:
                await store.reseal_clients()
            await vault.drop_keys(tenant, except_id=fresh)
        return sealed

    sealed = with_identity_database(config, work)
    if as_json:
        print(json.dumps({"sealed": sealed}))
        return
    for tenant, count in sealed.items():
        print(f"{tenant}: {count} {'account' if count == 1 else 'accounts'} sealed with a new key")
    if not sealed:
        print("The vault is empty.")


def _connected_at(backend: str, url: str | None, token: str | None, config: Path | None) -> float | None:
    rows = _request("GET", "", url, token, config)
    return next(
        (row["connected_at"] for row in rows if row["backend"] == backend and row["state"] == "connected"), None
    )


def _request(method: str, path: str, url: str | None, token: str | None, config: Path | None, **more: Any) -> Any:
    base = resolve_endpoint(url, config).rstrip("/").partition("/mcp")[0].rstrip("/")
    if token is None:
        raise CommandError("give --token or set GATEHOUSE_TOKEN, your API key or access token", code=UNAUTHENTICATED)
    try:
        with httpx.Client(timeout=30, trust_env=False) as http:
            answer = http.request(
                method, f"{base}/api/v1/accounts{path}", headers={"authorization": f"Bearer {token}"}, **more
            )
        body = answer.json()
    except (httpx.HTTPError, ValueError) as exc:
        raise CommandError(f"{base} does not answer; start it with `gatehouse serve`", code=UNREACHABLE) from exc
    if answer.status_code == 200:
        return body
    message = str(body.get("error", {}).get("message", "")) or f"HTTP {answer.status_code}"
    raise CommandError(message, code=UNAUTHENTICATED if answer.status_code == 401 else FAILED)


def _date(timestamp: float | None) -> str:
    return "never" if timestamp is None else datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M")
