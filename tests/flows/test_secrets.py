"""Canary secrets in every place where one is given: none of them is told to anybody who only watches."""

import asyncio
import html
import io
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.console.routes import PAGES
from gateway.telemetry.log import JsonFormatter
from tests.peers.collector import COLLECTORS
from tests.peers.operator import operator

CANARY = "canary-7f3a91c4"
JWT = f"eyJhbGciOiJub25lIn0.{CANARY.replace('-', '_')}.{CANARY}"


@pytest.fixture
async def echoing() -> AsyncIterator[str]:
    """A server that refuses everything, and says in its answer what it was sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = await reader.read(65536)
        body = b'{"error":' + repr(sent.decode("latin-1")).replace("'", '"').encode("latin-1", "replace") + b"}"
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """All that any library logs, at the level at which the gateway is run at its loudest, in the gateway's form."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root, ours = logging.getLogger(), logging.getLogger("gatehouse")
    before = root.level, ours.level
    root.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])


async def test_threat_29_canary_secrets_appear_in_no_log_span_metric_error_page_or_store(
    start: Any, tmp_path: Path, echoing: str, everything_logged: io.StringIO
) -> None:
    bodies: list[str] = []
    with COLLECTORS["http"]() as collector:
        secret = f"{CANARY}-header"
        oauth = {"client_id": "gatehouse", "client_secret": f"{CANARY}-oauth", "token_url": echoing}
        backends = {
            "core": {"module": "backends.core"},
            "plain": {"module": "tests.flows.fixtures.plain"},
            "header": {"url": echoing, "allow_private": True, "headers": {"Authorization": f"Bearer {secret}"}},
            "oauth": {"url": echoing, "allow_private": True, "oauth": oauth},
            "child": {"command": "sh", "args": ["-c", "echo $TOKEN >&2; exit 3"], "env": {"TOKEN": f"{CANARY}-env"}},
        }
        telemetry = {
            "traces": {"share": 1.0, "content": ["default"]},
            "otlp": {"url": collector.url, "headers": {"x-token": f"{CANARY}-otlp"}, "logs": True},
        }
        async with start(backends=backends, telemetry=telemetry) as gateway:
            own = gateway.key
            arguments = {"password": f"{CANARY}-argument", "token": f"{CANARY}-argument"}
            for tool in ("core_ping", "plain_add", "header_x", "oauth_x", "child_x", f"Bearer {CANARY}-name", own):
                bodies.append(str(await gateway.call(tool, arguments, {"api_key": f"{CANARY}-meta"})))
            # Its answer names the URI, as the protocol asks: to the one who sent it, and to nobody else.
            await gateway.post("resources/read", {"uri": f"http://u:{CANARY}@example.org/"})
            async with httpx.AsyncClient(verify=False) as http:
                for headers in (
                    {"authorization": f"Bearer {JWT}"},
                    {"authorization": f"Basic {CANARY.replace('-', '')}"},
                    {"x-api-key": f"{CANARY}-key"},
                    {"authorization": f"Bearer {own}{CANARY}"},
                    {"authorization": f"Bearer {own}", "mcp-session-id": f"{CANARY}-session"},
                    {"cookie": f"session={CANARY}-cookie"},
                ):
                    answer = await http.post(
                        gateway.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers
                    )
                    bodies.append(answer.text + str(answer.headers))
                bodies.append((await http.get(f"{gateway.base}/metrics")).text)
                pages = await _pages(gateway)
            await asyncio.to_thread(collector.until, lambda: len(collector.spans()) >= 6 and collector.logs())
            log = gateway.log.getvalue()
        told = "".join(str(request) for requests in collector.requests.values() for request in requests)
        sent = {name.lower(): value for name, value in collector.headers[0].items()}
    assert sent["x-token"] == f"{CANARY}-otlp"  # the slot was used
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    places = {
        "log": log,
        "process log": everything_logged.getvalue(),
        "telemetry": told,
        "answers and metrics": "".join(bodies),
        "store": stored.decode("latin-1"),
        "pages": "".join(pages),
    }
    key_secret = own.split("_", 2)[2]
    assert "password" in "".join(pages)  # the pages of the calls were looked at
    assert "password" in told  # what the tenant asked to see is there, without the value
    canaries = (CANARY, CANARY.replace("-", "_"), CANARY.replace("-", ""), own, key_secret)
    found = {(place, canary) for place, text in places.items() for canary in canaries if canary in text}
    assert not found


async def _pages(gateway: Any) -> list[str]:
    """Every page of the console, those of all calls, backends and tools among them."""
    await gateway.house.audit.flush()
    async with operator(gateway, code=await gateway.house.identity.sign_in_code()) as http:
        pages = [(await http.get(f"/console{path}")).text for path in PAGES]
        links = {link for page in pages for link in re.findall(r'href="(/console/\w+/[^"]+)"', page)}
        opened = [link for link in links if "/static/" not in link]
        async with asyncio.timeout(30):  # the spans are written a moment after the calls
            while not any("gen_ai.tool.call.arguments" in page for page in pages):
                pages += [(await http.get(html.unescape(link))).text for link in opened]
    return pages
