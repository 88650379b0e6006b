"""`gatehouse ping`: a complete round trip in each protocol era with the client of the MCP SDK."""

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from typing import Final, cast

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from gateway.cli.failure import CALL_FAILED, UNAUTHENTICATED, UNREACHABLE, CommandError
from gateway.cli.output import count
from gateway.contract import MODERN

ERAS: Final = {"modern": MODERN, "handshake": "legacy"}
TIMEOUT_SECONDS: Final = 20.0
_DEFAULT_TOOL: Final = "core_ping"


@dataclass(frozen=True, slots=True)
class PingResult:
    """Result in one era. The field names are the keys of the JSON output."""

    era: str
    version: str
    tools: int
    called: str | None
    milliseconds: int


def ping(url: str, token: str | None, tool: str | None, as_json: bool) -> None:
    """Raises `CommandError` at the first era that fails."""
    results = [asyncio.run(_ping_era(era, url, token, tool)) for era in ERAS]
    if as_json:
        print(json.dumps([asdict(result) for result in results]))
        return
    for result in results:
        called = f"called {result.called}" if result.called else "no tool called"
        print(f"ok  {result.version}  {count(result.tools, 'tool')}, {called}, {result.milliseconds} ms")


async def _ping_era(era: str, url: str, token: str | None, tool: str | None) -> PingResult:
    started = time.monotonic()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            version, tools, called = await _connect_and_call(era, url, token, tool)
    except TimeoutError as exc:
        message = f"{url}: no response in the {era} era within {TIMEOUT_SECONDS:g} s; check the gateway"
        raise CommandError(message, code=UNREACHABLE) from exc
    except (MCPError, httpx2.HTTPError, OSError, CommandError, ExceptionGroup) as exc:
        raise _failure(era, url, exc) from exc
    return PingResult(era, version, tools, called, round((time.monotonic() - started) * 1000))


async def _connect_and_call(era: str, url: str, token: str | None, tool: str | None) -> tuple[str, int, str | None]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    statuses: list[int] = []

    async def record_status(response: httpx2.Response) -> None:
        statuses.append(response.status_code)

    # The SDK's client does not expose the HTTP status of an error.
    hooks = {"response": [record_status]}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, event_hooks=hooks) as http:
        try:
            return await _with_client(http, era, url, tool)
        except Exception as exc:
            if 401 in statuses:
                problem = "rejected the token" if token else "requires a token; give --token or set GATEHOUSE_TOKEN"
                raise CommandError(
                    f"{url} {problem} (create one: `gatehouse key create`)", code=UNAUTHENTICATED
                ) from exc
            raise


async def _with_client(http: httpx2.AsyncClient, era: str, url: str, tool: str | None) -> tuple[str, int, str | None]:
    async with Client(streamable_http_client(url, http_client=http), mode=ERAS[era], cache=None) as client:
        names = await _names(client)
        chosen = tool or (_DEFAULT_TOOL if _DEFAULT_TOOL in names else None)
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
    """Convert the first error of a group into a `CommandError`; re-raise an unexpected one."""
    first = exc
    while isinstance(first, ExceptionGroup):
        first = cast("ExceptionGroup[Exception]", first).exceptions[0]
    match first:
        case CommandError():
            return first
        case MCPError():
            return CommandError(f"{url}: request failed in the {era} era: {first}", code=CALL_FAILED)
        case httpx2.HTTPError() | OSError():
            return CommandError(f"{url}: unreachable in the {era} era: {first}; check --url", code=UNREACHABLE)
        case _:
            raise exc
