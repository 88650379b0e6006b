"""`python -m tests.faults.pusher PORT CONNECTIONS SECONDS`: calls `busy_work` on each connection without a pause.

Says `pushing` once all are connected; when its input ends, how many calls were refused. Refused, it comes back after a
quarter of a second, whatever it was told.
"""

import asyncio
import json
import os
import sys

from tests.flows.process import modern, modern_headers

AGAIN = 0.25


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


async def push(port: int, sent: bytes, connected: asyncio.Semaphore, refused: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connected.release()
    while True:
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if b"rate_limited" in await reader.readexactly(length):
            refused[0] += 1
            await asyncio.sleep(AGAIN)


async def main() -> None:
    port, many, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    sent, connected, refused = request(port, os.environ["PUSHER_KEY"], seconds), asyncio.Semaphore(0), [0]
    tasks = [asyncio.create_task(push(port, sent, connected, refused)) for _ in range(many)]
    for _ in tasks:
        await connected.acquire()
    print("pushing", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(refused[0], flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
