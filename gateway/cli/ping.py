"""`gatehouse ping`: a whole round trip in each era, with the clients that other people use."""

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from typing import Final, cast

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from gateway.cli.failure import CALL_FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.contract import MODERN

ERAS: Final = {"modern": MODERN, "handshake": "legacy"}
SECONDS: Final = 20.0
_USUAL: Final = "core_ping"


@dataclass(frozen=True, slots=True)
class PingResult:
    """What came back in one era."""

    era: str
    version: str
    tools: int
    called: str | None
    milliseconds: int


def ping(url: str, token: str | None, tool: str | None, as_json: bool) -> None:
    """Raises `Failure` at the first era that does not answer."""
    trips = [asyncio.run(_trip(era, url, token, tool)) for era in ERAS]
    if as_json:
        print(json.dumps([asdict(trip) for trip in trips]))
        return
    for trip in trips:
        called = f"called {trip.called}" if trip.called else "no tool called"
        print(f"ok  {trip.version}  {trip.tools} tools, {called}, {trip.milliseconds} ms")


async def _trip(era: str, url: str, token: str | None, tool: str | None) -> PingResult:
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            version, tools, called = await _there_and_back(era, url, token, tool)
    except TimeoutError as exc:
        raise CommandError(f"{url}: no answer in the {era} era within {SECONDS:g} s", code=UNREACHABLE) from exc
    except (MCPError, httpx2.HTTPError, OSError, CommandError, ExceptionGroup) as exc:
        raise _failure(era, url, exc) from exc
    return PingResult(era, version, tools, called, round((time.monotonic() - began) * 1000))


async def _there_and_back(era: str, url: str, token: str | None, tool: str | None) -> tuple[str, int, str | None]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    statuses: list[int] = []

    async def note(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    # The SDK's client tells only that there was an error, not which.
    hooks = {"response": [note]}
    async with httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False, event_hooks=hooks) as http:
        try:
            return await _with_client(http, era, url, tool)
        except Exception as exc:
            if 401 in statuses:
                wants = "does not accept this token" if token else "wants a token; give --token or set GATEHOUSE_TOKEN"
                raise CommandError(f"{url} {wants} (`gatehouse key create` makes one)", code=UNAUTHENTICATED) from exc
            raise


async def _with_client(http: httpx2.AsyncClient, era: str, url: str, tool: str | None) -> tuple[str, int, str | None]:
    async with Client(streamable_http_client(url, http_client=http), mode=ERAS[era], cache=None) as client:
        names = await _names(client)
        chosen = tool or (_USUAL if _USUAL in names else None)
        if chosen is not None and (await client.call_tool(chosen, {})).is_error:
            raise CommandError(f"{url}: {chosen} failed in the {era} era", code=CALL_FAILED)
        return str(client.protocol_version), len(names), chosen


async def _names(client: Client) -> list[str]:
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            return names


def _failure(era: str, url: str, exc: Exception) -> CommandError:
    """The first thing that went wrong, in a line; what nobody foresaw stays what it is."""
    first = exc
    while isinstance(first, ExceptionGroup):
        first = cast("ExceptionGroup[Exception]", first).exceptions[0]
    match first:
        case CommandError():
            return first
        case MCPError():
            return CommandError(f"{url}: refused in the {era} era: {first}", code=CALL_FAILED)
        case httpx2.HTTPError() | OSError():
            return CommandError(f"{url}: cannot be reached in the {era} era: {first}", code=UNREACHABLE)
        case _:
            raise exc
