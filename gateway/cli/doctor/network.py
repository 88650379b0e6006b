"""Checks of network services: identity providers and the OpenTelemetry collector."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from gateway.auth.jwks import MAX_BYTES, IssuerKeys, metadata_urls
from gateway.cli.doctor.finding import DoctorFinding, failed, passed, warning
from gateway.cli.doctor.storage import clock
from gateway.contract import Json
from gateway.errors import Fault
from gateway.outbound import create_client as outbound_client
from gateway.settings import Settings
from gateway.wiring.outbound import outbound_route

_SECONDS: Final = 5.0


async def issuers(settings: Settings) -> AsyncIterator[DoctorFinding]:
    for position, entry in enumerate(settings.auth.issuers):
        part = f"auth.issuers.{position}"
        async with outbound_client(
            allow_private=entry.allow_private, max_bytes=MAX_BYTES, timeout=_SECONDS, route=outbound_route(settings)
        ) as http:
            async for finding in _issuer(part, entry.issuer, http):
                yield finding
        for finding in _unknown_tenants(part, entry.possible_tenants, settings):
            yield finding
    for name, provider in settings.auth.providers.items():
        part = f"auth.providers.{name}"
        # GitHub has no discovery document, and that of several Entra directories names a placeholder.
        if provider.preset != "github" and not provider.is_multi_tenant:
            private = provider.allow_private
            route = outbound_route(settings)
            async with outbound_client(
                allow_private=private, max_bytes=MAX_BYTES, timeout=_SECONDS, route=route
            ) as http:
                async for finding in _issuer(part, provider.effective_issuer, http):
                    yield finding
        for finding in _unknown_tenants(part, frozenset(rule.tenant for rule in provider.rules), settings):
            yield finding


def _unknown_tenants(part: str, tenants: frozenset[str], settings: Settings) -> Iterator[DoctorFinding]:
    for tenant in sorted(tenants - set(settings.tenants)):
        yield failed(part, f"assigns users to the unknown tenant {tenant}", f"add {tenant}: {{}} to tenants:")


async def _issuer(part: str, issuer: str, http: httpx.AsyncClient) -> AsyncIterator[DoctorFinding]:
    document, response, problem = None, None, ""
    for where in metadata_urls(issuer):
        try:
            response = await http.get(where, headers={"Accept": "application/json"})
        except Fault as fault:
            problem = problem or fault.message.rstrip(".")
            continue
        if (document := _object(response)) is not None:
            break
    if response is None:
        private = "private" in problem or "TLS" in problem
        fix = (
            "set allow_private: true if a private address is intended"
            if private
            else "check that it runs and is reachable from this machine, or correct issuer"
        )
        yield failed(part, f"{issuer} is unreachable: {problem}", fix)
        return
    if (date := response.headers.get("date")) is not None:
        yield clock(issuer, _parse_date(date) - time.time())
    if document is None:
        yield failed(
            part, f"{issuer} has no discovery document", "set issuer to exactly the value of iss in its tokens"
        )
    elif document.get("issuer") != issuer:
        name = document.get("issuer")
        yield failed(part, f"the discovery document of {issuer} names issuer {name}", f"set issuer: {name}")
    else:
        yield await _keys(part, issuer, http)


async def _keys(part: str, issuer: str, http: httpx.AsyncClient) -> DoctorFinding:
    try:
        found = await IssuerKeys(http, issuer).count()
    except Fault:
        found = 0
    if found:
        return passed(part, f"{issuer} is reachable, {found} usable keys")
    return failed(
        part,
        f"{issuer} publishes no usable key",
        "configure it to sign with ES256, or with RS256 and at least 2048 bits",
    )


def _object(response: httpx.Response) -> Json | None:
    try:
        body: Any = response.json() if response.status_code == 200 else None
    except (ValueError, RecursionError):
        return None
    return cast("Json", body) if isinstance(body, dict) else None


def _parse_date(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return time.time()


async def collector(settings: Settings) -> AsyncIterator[DoctorFinding]:
    if (url := settings.telemetry.otlp.url) is None:
        return
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError):
        yield warning(
            "telemetry.otlp.url",
            f"{url} is unreachable; traces and metrics are dropped, calls are not affected",
            "start the collector (otel-collector.yaml), or correct the URL; gRPC uses port 4317, HTTP port 4318",
        )
    else:
        yield passed("telemetry.otlp.url", f"{url} accepts connections")
