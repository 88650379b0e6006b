"""Limits on the number and buffers of streams and subscriptions."""

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from gateway.contract import ListChange
from tests.flows.process import modern, modern_headers
from tests.flows.replica_client import HandshakeClient

CORE = {"core": {"module": "backends.core"}}


async def test_threat_25_stream_over_the_limit_is_rejected_and_calls_still_work(start: Any) -> None:
    streams = {"per_principal": 2, "per_tenant": 3}
    async with start(backends=CORE, streams=streams) as gateway, AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=20, verify=False))

        async def opened(key: str) -> int:
            client = HandshakeClient(http, key)
            await client.initialize(gateway)
            return (await stack.enter_async_context(client.listen(gateway))).status

        other = await gateway.new_key(subject="bob")
        assert [await opened(gateway.key) for _ in range(3)] == [200, 200, 429]
        assert [await opened(other) for _ in range(2)] == [200, 429]
        refused = (await gateway.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})).json()
        assert refused["error"]["code"] == 429
        assert refused["error"]["data"]["retryable"] is True
        assert "result" in await gateway.call("core_ping")


async def test_threat_25_listener_that_never_reads_is_disconnected_and_buffers_stay_bounded(start: Any) -> None:
    """Send 200 MB of notifications to a client that reads none."""
    lamp = {"lamp": {"module": "tests.flows.fixtures.lamp"}}
    async with start(backends=lamp, server={"write_timeout": 1.0}) as gateway:
        _, writer = await _open_subscription(gateway, "gatehouse://lamp/lamp%3A%2F%2Fstate")
        assert len(gateway.app._subscriptions) == 1
        before = _rss()
        change = ListChange("resource", "lamp://state", "default", {"_meta": {"filler": "x" * 100_000}})
        async with asyncio.timeout(30):
            for _ in range(2000):
                gateway.app._subscriptions.publish("lamp", change)
                await asyncio.sleep(0)
            while len(gateway.app._subscriptions):
                await asyncio.sleep(0.05)
        assert _rss() - before < 60_000_000
        assert "result" in await gateway.call("lamp_switch")
        writer.transport.abort()


async def _open_subscription(gateway: Any, uri: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a subscription on a raw connection and read until it is acknowledged, but no further."""
    params = {"notifications": {"resourceSubscriptions": [uri]}}
    body = json.dumps(modern("subscriptions/listen", params)).encode()
    host, _, port = gateway.base.removeprefix("http://").partition(":")
    # A small reader buffer, so that the kernel's buffers fill soon.
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    headers = {
        "host": f"{host}:{port}",
        "authorization": f"Bearer {gateway.key}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **modern_headers("subscriptions/listen", params),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    async with asyncio.timeout(10):
        received = b""
        while b"subscriptions/acknowledged" not in received:
            received += await reader.read(1024)
    return reader, writer


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_ended_stream_frees_its_slot(start: Any) -> None:
    async with start(backends=CORE, streams={"per_principal": 1}) as gateway:
        async with httpx.AsyncClient(timeout=20, verify=False) as http:
            client = HandshakeClient(http, gateway.key)
            await client.initialize(gateway)
            for _ in range(3):
                status = 429
                while status == 429:  # until the gateway notices that the last stream ended
                    async with client.listen(gateway) as events:
                        status = events.status
                assert status == 200
