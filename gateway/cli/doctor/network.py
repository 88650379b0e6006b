"""Who is asked over the network: identity providers and the collector."""

import asyncio
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx

from gateway.auth.jwks import MAX_BYTES, IssuerKeys, wells
from gateway.cli.doctor.finding import DoctorFinding, bad, good, warning
from gateway.cli.doctor.storage import clock
from gateway.contract import Json
from gateway.errors import Fault
from gateway.outbound import client as outbound_client
from gateway.settings import IssuerSettings, Settings

_SECONDS: Final = 5.0


async def issuers(settings: Settings) -> AsyncIterator[DoctorFinding]:
    for position, entry in enumerate(settings.auth.issuers):
        part = f"auth.issuers.{position}"
        async with outbound_client(allow_private=entry.allow_private, max_bytes=MAX_BYTES, timeout=_SECONDS) as http:
            async for finding in _issuer(part, entry, http):
                yield finding
        for tenant in sorted(entry.gives - set(settings.tenants)):
            yield bad(part, f"gives people the tenant {tenant}, which is not there", f"add {tenant}: {{}} to tenants:")


async def _issuer(part: str, entry: IssuerSettings, http: httpx.AsyncClient) -> AsyncIterator[DoctorFinding]:
    said, answer, problem = None, None, ""
    for where in wells(entry.issuer):
        try:
            answer = await http.get(where, headers={"Accept": "application/json"})
        except Fault as fault:
            problem = problem or fault.message.rstrip(".")
            continue
        if (said := _object(answer)) is not None:
            break
    if answer is None:
        private = "private" in problem or "TLS" in problem
        mend = (
            "write allow_private: true if it may lie in a private network"
            if private
            else "see that it runs and that this machine may reach it; else mend issuer"
        )
        yield bad(part, f"{entry.issuer} cannot be asked: {problem}", mend)
        return
    if (date := answer.headers.get("date")) is not None:
        yield clock(entry.issuer, _moment(date) - time.time())
    if said is None:
        yield bad(
            part, f"{entry.issuer} has no discovery document", "write issuer letter by letter as its tokens have it"
        )
    elif said.get("issuer") != entry.issuer:
        yield bad(part, f"{entry.issuer} calls itself {said.get('issuer')}", f"write issuer: {said.get('issuer')}")
    else:
        yield await _keys(part, entry, http)


async def _keys(part: str, entry: IssuerSettings, http: httpx.AsyncClient) -> DoctorFinding:
    try:
        found = await IssuerKeys(http, entry.issuer).count()
    except Fault:
        found = 0
    if found:
        return good(part, f"{entry.issuer} answers, {found} keys can be used")
    return bad(
        part,
        f"{entry.issuer} publishes no key that can be used",
        "have it sign with ES256, or RS256 of 2048 bits or more",
    )


def _object(answer: httpx.Response) -> Json | None:
    try:
        body: Any = answer.json() if answer.status_code == 200 else None
    except (ValueError, RecursionError):
        return None
    return cast("Json", body) if isinstance(body, dict) else None


def _moment(date: str) -> float:
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
            f"nothing listens at {url}: traces and metrics are dropped, calls are not harmed",
            "start the collector (otel-collector.yaml), or mend the address; gRPC has 4317, HTTP 4318",
        )
    else:
        yield good("telemetry.otlp.url", f"{url} takes connections")
