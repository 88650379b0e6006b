"""Queries on behalf of another caller, answered by a running gateway's API or by a gateway opened for the query."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

from gateway.app import Gateway
from gateway.cli.failure import BAD_SETTINGS, UNAUTHENTICATED, UNREACHABLE, CommandError, explain_system_errors
from gateway.cli.load_settings import OPS_PORT_HINT, add_module_paths, read_settings
from gateway.contract import Caller, Json
from gateway.contract.caller import DEFAULT_SCOPES
from gateway.telemetry.log import LogLines
from gateway.upstream.health import LoadError

T = TypeVar("T")

GIVE_TOKEN: Final = "give --token or set GATEHOUSE_TOKEN, a key with the scope mcp:admin"  # noqa: S105 - says how
CREATE_ADMIN_KEY: Final = "create a key with `gatehouse key create --subject NAME --scope mcp:admin`"


def build_caller(
    tenant: str, subject: str | None, service: str | None, groups: list[str] | None, scopes: list[str] | None
) -> Caller:
    """The caller that a query is about."""
    if bool(subject) == bool(service):
        raise CommandError("give either --subject for a user or --service for a service account", code=2)
    kind = "user" if subject else "service"
    name = subject or service or ""
    return Caller(tenant, name, kind, frozenset(groups or ()), frozenset(scopes or DEFAULT_SCOPES))


def with_gateway(config: Path | None, work: Callable[[Gateway], T]) -> T:
    """Open a gateway with these settings without serving, run `work` on it, and close it."""
    settings = read_settings(config)
    add_module_paths(settings)

    async def run() -> T:
        gateway = await Gateway.open(settings, LogLines(io.StringIO()))
        try:
            return work(gateway)
        finally:
            await gateway.close()

    with explain_system_errors(settings):
        try:
            return asyncio.run(run())
        except LoadError as exc:
            raise CommandError(settings.with_origin(exc.setting_path, str(exc)), code=BAD_SETTINGS) from exc


def post_api(base: str, token: str | None, route: str, caller: Caller, more: Json) -> Json:
    """POST a query about a caller to a route of the operator API."""
    about: Json = {
        "subject": caller.subject,
        "kind": caller.kind,
        "tenant": caller.tenant,
        "groups": sorted(caller.groups),
    }
    body = {**about, "scopes": sorted(caller.scopes), **more}
    return _request(base, token, lambda http: http.post(f"{base}/api/v1/{route}", json=body))


def get_api(base: str, token: str | None, route: str, query: Json) -> Json:
    """GET a route of the operator API."""
    return _request(base, token, lambda http: http.get(f"{base}/api/v1/{route}", params=query))


def send_api(method: str, base: str, token: str | None, route: str, body: Json | None) -> Json:
    """Send a request that changes something to a route of the operator API."""
    return _request(base, token, lambda http: http.request(method, f"{base}/api/v1/{route}", json=body))


def _request(base: str, token: str | None, send: Callable[[httpx.Client], httpx.Response]) -> Json:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(headers=headers, timeout=30, trust_env=False) as http:
            response = send(http)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        raise CommandError(f"cannot reach {base}: {exc}; check --url", code=UNREACHABLE) from exc
    try:
        body: Json = response.json()
    except ValueError as exc:
        raise CommandError(
            f"{base} is not a Gatehouse API (HTTP {response.status_code}); check --url", code=UNREACHABLE
        ) from exc
    if response.status_code == 404 and "error" not in body:
        raise CommandError(f"{base} has no operator API; {OPS_PORT_HINT}", code=UNREACHABLE)
    if response.status_code != 200:
        code = UNAUTHENTICATED if response.status_code in (401, 403) else 1
        error: Json = body.get("error") or {}
        details: Json = error.get("details") or {}
        lacks_admin = "mcp:admin" in details.get("missing_scopes", ())
        fix = GIVE_TOKEN if response.status_code == 401 else CREATE_ADMIN_KEY if lacks_admin else None
        message = str(error.get("message") or f"HTTP {response.status_code}")
        raise CommandError(message, *([fix] if fix else []), code=code)
    return body
