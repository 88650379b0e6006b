"""Asking on somebody's behalf: of a running gateway by its API, or of one that is opened for the question."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

from gateway.app import Gatehouse
from gateway.auth.api_keys import DEFAULT_SCOPES
from gateway.cli.failure import BAD_SETTINGS, UNAUTHENTICATED, UNREACHABLE, CommandError, system_errors_explained
from gateway.cli.load_settings import ELSEWHERE, make_importable, read_settings
from gateway.contract import Caller, Json
from gateway.telemetry.log import LogLines
from gateway.upstream.health import LoadError

T = TypeVar("T")

GIVE_TOKEN: Final = "give --token or set GATEHOUSE_TOKEN, a key with the scope mcp:admin"  # noqa: S105 - says how
MAKE_ADMIN: Final = "`gatehouse key create --subject NAME --scope mcp:admin` makes one that may"


def person(
    tenant: str, subject: str | None, service: str | None, groups: list[str] | None, scopes: list[str] | None
) -> Caller:
    """Whom the question is about."""
    if bool(subject) == bool(service):
        raise CommandError("say who would call: --subject for a user or --service for a service account", code=2)
    kind = "user" if subject else "service"
    name = subject or service or ""
    return Caller(tenant, name, kind, frozenset(groups or ()), frozenset(scopes or DEFAULT_SCOPES))


def with_house(config: Path | None, work: Callable[[Gatehouse], T]) -> T:
    """What `work` finds in a gateway of these settings, which serves nobody and is closed again."""
    settings = read_settings(config)
    make_importable(settings)

    async def run() -> T:
        house = await Gatehouse.open(settings, LogLines(io.StringIO()))
        try:
            return work(house)
        finally:
            await house.close()

    with system_errors_explained(settings):
        try:
            return asyncio.run(run())
        except LoadError as exc:
            raise CommandError(settings.placed(exc.at, str(exc)), code=BAD_SETTINGS) from exc


def ask_api(base: str, token: str | None, route: str, who: Caller, more: Json) -> Json:
    """One question to the operator's API at that address."""
    asked: Json = {"subject": who.subject, "kind": who.kind, "tenant": who.tenant, "groups": sorted(who.groups)}
    body = {**asked, "scopes": sorted(who.scopes), **more}
    return _asked(base, token, lambda http: http.post(f"{base}/api/v1/{route}", json=body))


def read_api(base: str, token: str | None, route: str, query: Json) -> Json:
    """What a route of the operator's API at that address says to a GET."""
    return _asked(base, token, lambda http: http.get(f"{base}/api/v1/{route}", params=query))


def _asked(base: str, token: str | None, ask: Callable[[httpx.Client], httpx.Response]) -> Json:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(headers=headers, timeout=30, trust_env=False) as http:
            answer = ask(http)
    except (httpx.TransportError, httpx.InvalidURL) as exc:
        raise CommandError(f"cannot reach {base}: {exc}", code=UNREACHABLE) from exc
    try:
        found: Json = answer.json()
    except ValueError as exc:
        raise CommandError(
            f"{base} did not answer as a Gatehouse (HTTP {answer.status_code})", code=UNREACHABLE
        ) from exc
    if answer.status_code == 404 and "error" not in found:
        raise CommandError(f"{base} has no operator's API; {ELSEWHERE}", code=UNREACHABLE)
    if answer.status_code != 200:
        code = UNAUTHENTICATED if answer.status_code in (401, 403) else 1
        error: Json = found.get("error") or {}
        mend = {401: GIVE_TOKEN, 403: MAKE_ADMIN}.get(answer.status_code)
        said = str(error.get("message") or f"HTTP {answer.status_code}")
        raise CommandError(said, *([mend] if mend else []), code=code)
    return found
