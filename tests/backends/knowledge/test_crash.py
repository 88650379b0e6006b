"""Crash tests: a killed gateway process loses no acknowledged change."""

import asyncio
import copy
import multiprocessing
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.backends.knowledge.reference_model import Driver, Model, outcome_of, random_op
from tests.backends.knowledge.serve_subprocess import serve


class Killable:
    """Runs `gatehouse serve` as a subprocess that can be killed and restarted on the same data."""

    def __init__(self, folder: Path, memory: Any) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            base = f"http://127.0.0.1:{found.getsockname()[1]}"
        self._base = base
        self._config = folder / "gatehouse.yaml"
        self.memory = replace(memory, url=f"{base}/mcp", tenant="default", key="none", schemas={})
        settings = {
            "server": {"port": int(base.rpartition(":")[2]), "public_url": base},
            "data_dir": str(folder / "data"),
            "auth": {"mode": "none"},
            "limits": {"calls": "1000000/minute"},
            "backends": {"knowledge": {"module": "backends.knowledge"}},
        }
        self._config.write_text(yaml.safe_dump(settings))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        process = FORKS.Process(target=serve, args=(str(self._config),))
        process.start()
        try:
            await asyncio.wait_for(self._ready(process), 60)
            yield process
        finally:
            process.kill()
            process.join()

    async def _ready(self, process: Any) -> None:
        while process.is_alive():
            try:
                if (await self.memory.http.get(f"{self._base}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.02)
        pytest.fail(f"the gateway ended with {process.exitcode}")


KILLS = 40 if os.environ.get("GATEHOUSE_LONG") == "1" else 2

# The fork server preloads the modules, so that each subprocess starts quickly.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["tests.backends.knowledge.serve_subprocess", "gateway.app", "gateway.cli.serve", "backends.knowledge"]
)


async def kill_during(process: Any, driver: Driver, model: Model, rng: random.Random) -> list[Model]:
    """Kill the gateway during one more operation. Returns the models that are possible afterwards."""
    tool_call = None
    while tool_call is None:
        op = random_op(rng)
        tool_call = await driver.call(model, op)
    after = copy.deepcopy(model)
    expected = after.apply(op)
    answer = asyncio.create_task(driver.memory.result(tool_call[0], tool_call[1]))
    await asyncio.sleep(rng.uniform(0, 0.02))
    process.kill()
    try:
        structured = (await answer)["structuredContent"]
    except (httpx.TransportError, ValueError):
        return [model, after]
    assert outcome_of(structured) == expected
    return [after]


async def test_acknowledged_changes_survive_a_process_kill(memory: Any, tmp_path: Path) -> None:
    rng = random.Random(7)
    killable = Killable(tmp_path, memory)
    driver, possible = Driver(killable.memory), [Model()]
    for _ in range(KILLS):
        async with killable.running() as process:
            found = await driver.read_state()
            (model, *_) = [each for each in possible if (each.now, each.ops) == found]
            for _ in range(rng.randrange(8, 12)):
                await driver.step(model, random_op(rng))
            possible = await kill_during(process, driver, model, rng)
    async with killable.running():
        found = await driver.read_state()
        (model, *_) = [each for each in possible if (each.now, each.ops) == found]
        await driver.compare(model)


async def test_ingestion_resumes_after_a_process_kill_and_stores_each_chunk_once(memory: Any, tmp_path: Path) -> None:
    killable = Killable(tmp_path, memory)
    text = "\n\n".join(f"Paragraph {n}\n" + "word " * 90 for n in range(400))
    async with killable.running() as process:
        task = await killable.memory("ingest", content=text)
        process.kill()
    assert task["status"] in ("pending", "processing")
    async with killable.running():
        while task["status"] in ("pending", "processing"):
            task = await killable.memory("ingestion_status", task_id=task["task_id"])
        assert (task["status"], task["stored"], task["skipped"]) == ("completed", 400, 0)
        found = [item["topic"] for page in await killable.memory.pages("query", limit=200) for item in page]
        assert sorted(found) == sorted(f"Paragraph {n}" for n in range(400))
