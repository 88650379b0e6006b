"""Program of the hostile-tenant scenario: calls `busy_work` without a pause on every connection.

Usage: `python -m tests.faults.flood_client PORT CONNECTIONS SECONDS`. Prints `flooding` once all connections are open,
and the number of rejected calls when its input ends. Retries a rejected call after `RETRY_SECONDS`, whatever the
response asks for.
"""

import asyncio
import json
import os
import sys

from tests.flows.process import modern, modern_headers

RETRY_SECONDS = 0.25


def request(port: int, key: str, seconds: float) -> bytes:
    params = {"name": "busy_work", "arguments": {"seconds": seconds}}
    body = json.dumps(modern("tools/call", params)).encode()
    headers = {
        "host": f"127.0.0.1:{port}",
        "authorization": f"Bearer {key}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **modern_headers("tools/call", params),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


async def flood(port: int, sent: bytes, connected: asyncio.Semaphore, refused: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connected.release()
    while True:
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if b"rate_limited" in await reader.readexactly(length):
            refused[0] += 1
            await asyncio.sleep(RETRY_SECONDS)


async def main() -> None:
    port, connection_count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    sent, connected, refused = request(port, os.environ["FLOOD_KEY"], seconds), asyncio.Semaphore(0), [0]
    tasks = [asyncio.create_task(flood(port, sent, connected, refused)) for _ in range(connection_count)]
    for _ in tasks:
        await connected.acquire()
    print("flooding", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(refused[0], flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
