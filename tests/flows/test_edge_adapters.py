"""The MCP endpoint answers a request with the same bytes through our HTTP protocol and through ASGI.

The same gateway listens on two sockets: on one, requests reach the endpoint directly; on the other, every request goes
through ASGI. Each request of the table is sent to both. Dates, generated ids and measured times differ and are masked.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.edge.asgi import run_asgi
from gateway.runner import bind, build_config
from tests.conftest import Running, run_gateway
from tests.in_process_server import InProcessServer

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
LIMIT = 300_000
SERVER = """
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("counter")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def count(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step, 3)
    return "counted"


@server.tool()
def text(size: int) -> str:
    return "x" * size
"""

MASKS = [
    (re.compile(rb"(?m)^(date|x-correlation-id|mcp-session-id|server-timing|ratelimit): [^\r]*"), rb"\1: -"),
    (re.compile(rb'"(correlation_?[iI]d|retry_after|request_id)": ?("[^"]*"|[0-9.]+)'), rb'"\1": "-"'),
    (re.compile(rb"(?m)^(retry-after): [0-9]+"), rb"\1: -"),
    (re.compile(rb"(?m)^id: [^\n]*"), b"id: -"),
    (re.compile(rb"correlation id [A-Za-z0-9._-]+"), b"correlation id -"),
]


@dataclass(frozen=True)
class Row:
    """A request as bytes. `pieces` are sent one after the other; with `wait_for_continue`, the second only after
    `100 Continue`. `head_only` ends after the head of the response."""

    name: str
    pieces: tuple[bytes, ...]
    head_only: bool = False
    responses: int = 1
    half_close: bool = False
    wait_for_continue: bool = False


class Table:
    """Builds the rows. `KEY`, `NARROW` and `SESSION` in a header stand for values that are known at run time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(
        self,
        name: str,
        body: bytes = b"",
        *,
        verb: str = "POST",
        target: str = "/mcp",
        version: str = "1.1",
        length: bool = True,
        drop: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
        cut: tuple[int, ...] = (),
        chunked: bool = False,
        **row: Any,
    ) -> None:
        given = {
            "host": "127.0.0.1",
            "authorization": "Bearer KEY",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        lines = [f"{verb} {target} HTTP/{version}"]
        lines += [f"{key}: {value}" for key, value in given.items() if key not in drop]
        lines += more
        if chunked:
            lines.append("transfer-encoding: chunked")
            half = len(body) // 2
            parts = [part for part in (body[:half], body[half:]) if part]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        elif length and (body or verb == "POST"):
            lines.append(f"content-length: {len(body)}")
        whole = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
        bounds = [0, *cut, len(whole)]
        pieces = tuple(whole[a:b] for a, b in pairwise(bounds))
        self.rows.append(Row(name, pieces, **row))


def message(method: str, params: dict[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}).encode()


def modern(method: str, params: dict[str, Any] | None = None) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "p",
    }
    return message(method, {**(params or {}), "_meta": meta})


def modern_headers(method: str, name: str | None = None) -> tuple[str, ...]:
    headers = (f"mcp-protocol-version: {MODERN}", f"mcp-method: {method}")
    return headers if name is None else (*headers, f"mcp-name: {name}")


ADD = {"name": "counter_add", "arguments": {"a": 1, "b": 2}}
CALLS: dict[str, dict[str, Any]] = {
    "counter_add": ADD,
    "counter_count": {"name": "counter_count", "arguments": {}},
    "counter_text": {"name": "counter_text", "arguments": {"size": 200_000}},
    "counter_nothing": {"name": "counter_nothing", "arguments": {}},
}
INVALID = {
    **ADD,
    "arguments": {"a": "one"},
}
BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  ",
    "not json": b"{",
    "not utf-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "number": b"7",
    "batch": b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    "duplicate key": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "deep": b"[" * 2000 + b"]" * 2000,
    "no version": b'{"id":1,"method":"ping"}',
    "null id": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "notification": b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    "nan": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "unknown method": message("nothing/here"),
    "ping": message("ping"),
}


def table() -> list[Row]:
    rows = Table()
    _methods_and_targets(rows)
    _credentials(rows)
    _bodies(rows)
    _calls(rows)
    _headers(rows)
    _transfer(rows)
    _slow_and_cut_off(rows)
    return rows.rows


def _methods_and_targets(rows: Table) -> None:
    for verb in ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"):
        for target in ("/mcp", "/mcp/counter", "/mcp/nothing", "/mcp/", "/mcp//counter"):
            for era in (MODERN, HANDSHAKE):
                rows.add(
                    f"{verb} {target} {era}",
                    message("ping") if verb == "POST" else b"",
                    verb=verb,
                    target=target,
                    more=(f"mcp-protocol-version: {era}",),
                )


def _credentials(rows: Table) -> None:
    variants = {
        "none": (),
        "wrong": ("authorization: Bearer gh_wrong",),
        "basic": ("authorization: Basic KEY",),
        "lower case": ("authorization: bearer KEY",),
        "api key": ("x-api-key: KEY",),
        "twice": ("authorization: Bearer KEY", "authorization: Bearer KEY"),
        "empty": ("authorization: Bearer ",),
        "narrow": ("authorization: Bearer NARROW",),
    }
    for name, headers in variants.items():
        for target in ("/mcp", "/mcp/counter"):
            rows.add(
                f"credential {name} {target}",
                modern("tools/call", ADD),
                target=target,
                drop=("authorization",),
                more=(*headers, *modern_headers("tools/call", "counter_add")),
            )
        rows.add(f"credential {name} GET", verb="GET", drop=("authorization",), more=headers, head_only=True)


def _bodies(rows: Table) -> None:
    for name, body in BODIES.items():
        rows.add(f"body {name}, 2026-07-28", body, more=modern_headers("ping"))
        rows.add(f"body {name}, no version", body)
        rows.add(f"body {name}, in a session", body, more=("mcp-session-id: SESSION",))
        rows.add(f"body {name}, chunked", body, more=modern_headers("ping"), chunked=True)


def _calls(rows: Table) -> None:
    for name, params in CALLS.items():
        rows.add(f"call {name}", modern("tools/call", params), more=modern_headers("tools/call", name))
        rows.add(f"call {name} in a session", message("tools/call", params), more=("mcp-session-id: SESSION",))
    rows.add("invalid arguments", modern("tools/call", INVALID), more=modern_headers("tools/call", "counter_add"))
    for method in ("tools/list", "resources/list", "prompts/list", "server/discover"):
        rows.add(method, modern(method), more=modern_headers(method))
    for method in ("tools/list", "ping", "logging/setLevel"):
        rows.add(f"{method} in a session", message(method), more=("mcp-session-id: SESSION",))
    client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    rows.add("initialize", message("initialize", client))
    rows.add("unknown session", message("ping"), more=("mcp-session-id: nothing",))
    rows.add("stream of a session", verb="GET", more=("mcp-session-id: SESSION",), head_only=True)


def _headers(rows: Table) -> None:
    call = modern("tools/call", ADD)
    headers = modern_headers("tools/call", "counter_add")
    variants: dict[str, tuple[str, ...]] = {
        "name differs": (*headers[:2], "mcp-name: counter_text"),
        "method differs": (headers[0], "mcp-method: tools/list", headers[2]),
        "method missing": (headers[0], headers[2]),
        "version unknown": ("mcp-protocol-version: 2031-01-01", *headers[1:]),
        "version twice": (headers[0], *headers),
        "name twice": (*headers, headers[2]),
        "correlation id": (*headers, "x-correlation-id: mine"),
        "malformed correlation id": (*headers, "x-correlation-id: not/mine"),
        "trace context": (*headers, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        "server timing": (*headers, "x-server-timing: 1"),
        "close": (*headers, "connection: close"),
        "upgrade": (*headers, "connection: upgrade", "upgrade: h2c"),
        "gzip": (*headers, "content-encoding: gzip"),
        "identity": (*headers, "content-encoding: identity"),
        "origin": (*headers, "origin: http://127.0.0.1:3000"),
        "foreign origin": (*headers, "origin: https://evil.example"),
        "null origin": (*headers, "origin: null"),
        "two origins": (*headers, "origin: http://127.0.0.1:1", "origin: http://127.0.0.1:1"),
        "many headers": (*headers, *(f"x-{number}: v" for number in range(120))),
        "long header": (*headers, "x-long: " + "y" * 40_000),
        "non-ascii header": (*headers, "x-name: \xe9"),
    }
    for name, more in variants.items():
        rows.add(f"header {name}", call, more=more)
    for content_type in ("text/plain", "application/json; charset=utf-8", "APPLICATION/JSON", ""):
        rows.add(f"type {content_type}", call, drop=("content-type",), more=(*headers, f"content-type: {content_type}"))
    for accept in ("*/*", "application/json", "text/event-stream", "text/html", ""):
        rows.add(f"accept {accept}", call, drop=("accept",), more=(*headers, f"accept: {accept}"))
        rows.add(f"accept {accept} GET", verb="GET", drop=("accept",), more=(f"accept: {accept}",))
    for host in ("evil.example", "127.0.0.1:99999", "localhost:1", "[::1]:5", ""):
        rows.add(f"host {host}", call, drop=("host",), more=(f"host: {host}", *headers))
    rows.add("host missing", call, drop=("host",), more=headers)
    rows.add("host twice", call, more=("host: 127.0.0.1", *headers))
    for origin in ("http://localhost:3000", "https://evil.example"):
        asked = ("access-control-request-method: POST", "access-control-request-headers: mcp-param-x, other")
        rows.add(f"preflight {origin}", verb="OPTIONS", more=(f"origin: {origin}", *asked))
    rows.add(
        "stream with origin",
        verb="GET",
        more=("mcp-session-id: SESSION", "origin: http://localhost:3000"),
        head_only=True,
    )


def _transfer(rows: Table) -> None:
    call = modern("tools/call", ADD)
    headers = modern_headers("tools/call", "counter_add")
    large = modern("tools/call", {"name": "counter_add", "arguments": {"a": 1, "b": 2, "c": "x" * 150_000}})
    too_large = b" " * (LIMIT + 1)
    rows.add("HTTP/1.0", call, version="1.0", more=headers)
    rows.add(
        "HTTP/1.0 stream",
        modern("tools/call", CALLS["counter_count"]),
        version="1.0",
        more=modern_headers("tools/call", "counter_count"),
    )
    rows.add("chunked", call, more=headers, chunked=True)
    rows.add("large", large, more=headers)
    rows.add("large chunked", large, more=headers, chunked=True)
    rows.add("too large", too_large, more=headers)
    rows.add("too large chunked", too_large, more=headers, chunked=True)
    rows.add("without length", b"", more=headers, length=False)
    expect = (*headers, "expect: 100-continue")
    rows.add("expect, body at once", call, more=expect)
    head = b"".join(rows.rows[-1].pieces).index(b"\r\n\r\n") + 4
    rows.add("expect", call, more=expect, cut=(head,), wait_for_continue=True)
    rows.add("expect without credential", call, drop=("authorization",), more=(*headers, "expect: 100-continue"))
    rows.add("negative length", call, more=(*headers, "content-length: -1"), length=False)
    rows.add("two lengths", call, more=(*headers, f"content-length: {len(call) + 1}"))
    rows.add("length and chunks", call, more=(*headers, f"content-length: {len(call)}"), chunked=True)
    rows.add("absolute target", call, target="http://127.0.0.1/mcp", more=headers)
    for target in ("/mcp?x=1", "/mcp/counter?x", "/mcp#x", "/%6dcp", "/mcp/%63ounter", "/mcp/\xe9", "/mcpx", "*"):
        rows.add(f"target {target}", call, target=target, more=headers)
    # Pipelined requests are answered in order.
    rows.add("first", call, more=headers)
    rows.rows.append(Row("pipelined", (b"".join(rows.rows[-1].pieces) * 3,), responses=3))


def _slow_and_cut_off(rows: Table) -> None:
    call = modern("tools/call", ADD)
    headers = modern_headers("tools/call", "counter_add")
    for at in (1, 5, 40, 120, 200, 260):
        rows.add(f"split at {at}", call, more=headers, cut=(at,))
    rows.add("in many pieces", call, more=headers, cut=tuple(range(10, 400, 10)))
    rows.add("body later", call, more=headers, cut=(len(rows.rows[-1].pieces[0]) * 30,))
    whole = b"".join(rows.rows[-1].pieces)
    for end in (20, 200, len(whole) - 10):
        rows.rows.append(Row(f"cut off after {end}", (whole[:end],), half_close=True))
    rows.rows.append(Row("head never complete", (whole[:100],)))
    rows.rows.append(Row("body never complete", (whole[:-1],)))
    rows.rows.append(Row("garbage", (b"\x00\x01\x02\r\n\r\n",)))
    rows.rows.append(Row("TLS hello", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",)))
    rows.rows.append(Row("garbage after a request", (whole + b"garbage\r\n\r\n",)))


@asynccontextmanager
async def both_adapters(folder: Path) -> AsyncIterator[tuple[Running, int, int]]:
    (folder / "counter.py").write_text(SERVER)
    async with run_gateway(
        folder,
        backends={"counter": {"module": "counter"}},
        server={"max_body_bytes": LIMIT, "header_timeout": 1, "body_timeout": 1},
        limits={"calls": "100000/minute"},
    ) as gateway:
        bound = bind("127.0.0.1", 0)
        config = build_config(gateway.app, partial(run_asgi, gateway.app.asgi))
        async with InProcessServer(config).running(bound, force=True) as asgi_port:
            yield gateway, int(gateway.base.rpartition(":")[2]), asgi_port


async def exchange(port: int, row: Row, values: dict[bytes, bytes]) -> bytes:
    """Send the row and return the bytes received, masked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        for piece in row.pieces:
            for name, value in values.items():
                piece = piece.replace(name, value)
            writer.write(piece)
            await writer.drain()
            if row.wait_for_continue and not received:
                received = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        if row.half_close:
            writer.write_eof()
        async with asyncio.timeout(10):
            return mask(received + await read(reader, row))
    except TimeoutError:
        raise AssertionError(f"no answer to {row}") from None
    finally:
        writer.close()


async def read(reader: asyncio.StreamReader, row: Row) -> bytes:
    received = b""
    for _ in range(row.responses):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as exc:
            return received + exc.partial
        received += head
        if row.head_only:
            continue
        received += await read_body(reader, head, row)
    return received


async def read_body(reader: asyncio.StreamReader, head: bytes, row: Row) -> bytes:
    lower = head.lower()
    length = re.search(rb"content-length: (\d+)", lower)
    if row.pieces[0].startswith(b"HEAD "):
        return b""
    if length is not None:
        return await reader.readexactly(int(length[1]))
    if b"transfer-encoding: chunked" in lower:
        return await reader.readuntil(b"0\r\n\r\n")
    return await reader.read() if b"connection: close" in lower else b""


def mask(received: bytes) -> bytes:
    for pattern, shown in MASKS:
        received = pattern.sub(shown, received)
    return re.sub(rb"content-length: \d+", b"content-length: -", received)


async def open_session(gateway: Running) -> bytes:
    client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers = {"authorization": f"Bearer {gateway.key}", "accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.post(gateway.url, json=body, headers=headers)).headers["mcp-session-id"].encode()


def statuses(received: bytes) -> Iterator[int]:
    return (int(each) for each in re.findall(rb"(?m)^HTTP/1\.1 (\d{3})", received))


async def test_both_adapters_answer_every_request_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = table()
    assert len(rows) >= 200
    seen: set[int] = set()
    different: list[str] = []
    async with both_adapters(tmp_path) as (gateway, direct, asgi):
        await gateway.wait_for_tool("counter_add")
        narrow = await gateway.new_key(scopes=("mcp:list",))
        values = {b"KEY": gateway.key.encode(), b"NARROW": narrow.encode(), b"SESSION": await open_session(gateway)}
        for row in rows:
            ours, theirs = await exchange(direct, row, values), await exchange(asgi, row, values)
            seen.update(statuses(ours))
            if ours != theirs:
                different.append(f"{row.name}:\n  direct {ours[:1500]!r}\n  asgi   {theirs[:1500]!r}")
    assert not different, "\n".join(different)
    assert seen >= {100, 200, 202, 204, 400, 401, 403, 404, 405, 406, 408, 413, 415, 421, 431}, seen
