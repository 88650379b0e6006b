"""Several Studios with one key and one name, refused Studios, and play tests: none disturbs another."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backends.roblox.headless_studio import run_headless_studio

STUDIOS = 20 if os.environ.get("GATEHOUSE_LONG") == "1" else 2
CALLS = 200 if os.environ.get("GATEHOUSE_LONG") == "1" else 25


@asynccontextmanager
async def _refusing(status: int) -> AsyncIterator[tuple[str, list[float]]]:
    """A server that answers every request with this status; yields its address and the times of the requests."""
    times: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while header := await reader.readline():
            if header == b"\r\n":
                times.append(asyncio.get_running_loop().time())
                writer.write(f"HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
                await writer.drain()
                break
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", times


async def _connected(harness: Any, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(90):
        while True:
            studios = [studio for studio in await harness.studios() if studio["connected"]]
            if len(studios) == count:
                return studios
            await asyncio.sleep(0.05)


async def test_studios_with_one_key_and_one_name_do_not_disturb_each_other(harness: Any, modules: Path) -> None:
    key = await harness.studio_key()
    async with AsyncExitStack() as stack:
        for _ in range(STUDIOS):
            await stack.enter_async_context(run_headless_studio(harness.gateway.base, key, "Studio", modules))
        studios = await _connected(harness, STUDIOS)
        ids = [studio["studioId"] for studio in studios]
        assert len(set(ids)) == STUDIOS
        assert {studio["name"] for studio in studios} == {"Studio"}

        async def work(studio: str) -> None:
            for number in range(CALLS):
                arguments = {"parentPath": "Workspace", "className": "Folder", "name": f"F{number}", "studioId": studio}
                await harness.output("instance_create", arguments)

        await asyncio.gather(*(work(studio) for studio in ids))
        for studio in ids:
            children = await harness.output("instance_list_children", {"parentPath": "Workspace", "studioId": studio})
            assert children["total"] == CALLS
        # No session was replaced: the ids and the times of connecting are those of the start.
        assert [(each["studioId"], each["connectedAt"]) for each in await harness.studios()] == [
            (each["studioId"], each["connectedAt"]) for each in studios
        ]


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
async def test_plugin_waits_longer_after_each_refusal(modules: Path, status: int) -> None:
    async with (
        _refusing(status) as (url, times),
        run_headless_studio(url, "gth_wrong", "Studio", modules),
        asyncio.timeout(60),
    ):
        while len(times) < 6:
            await asyncio.sleep(0.02)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    # 0.1 s doubles each time, with a random part of a fifth.
    assert all(pause > 0.1 * 2**number * 0.75 for number, pause in enumerate(pauses)), pauses


async def test_plugin_in_a_users_play_test_does_not_connect(modules: Path) -> None:
    async with _refusing(404) as (url, times), AsyncExitStack() as stack:
        for context in ("server", "client"):
            await stack.enter_async_context(run_headless_studio(url, "k", "Studio", modules, context=context))
        edit = await stack.enter_async_context(run_headless_studio(url, "k", "Studio", modules))
        async with asyncio.timeout(60):
            while len(times) < 4:  # the edit window, started last, has asked by now
                await asyncio.sleep(0.02)
        count = len(times)
        edit.kill()
        await edit.wait()
        await asyncio.sleep(0)
        assert len(times) - count <= 1


async def test_play_test_that_the_gateway_started_is_a_context_of_its_studio(harness: Any, modules: Path) -> None:
    key, base = await harness.studio_key(), harness.gateway.base
    async with (
        run_headless_studio(base, key, "Studio", modules),
        run_headless_studio(base, key, "Studio", modules, context="server", test_arguments={"gatehouse": "one"}),
    ):
        studios = await _connected(harness, 2)
        assert Counter(studio["context"] for studio in studios) == {"edit": 1, "server": 1}
        # A call without a studioId goes to the edit window.
        arguments = {"parentPath": "Workspace", "className": "Folder", "name": "F"}
        await harness.output("instance_create", arguments)
        counts = {
            studio["context"]: (
                await harness.output(
                    "instance_list_children", {"parentPath": "Workspace", "studioId": studio["studioId"]}
                )
            )["total"]
            for studio in studios
        }
        assert counts == {"edit": 1, "server": 0}
