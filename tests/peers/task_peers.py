"""Runs the task clients of the SDKs 1.x, which speak 2025-11-25."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.peers import npm
from tests.peers.python_v1 import install_python_sdk

Json = dict[str, Any]
FOLDER = Path(__file__).parent


def _client_command(sdk: str) -> list[str]:
    if sdk == "python":
        return [str(install_python_sdk()), str(FOLDER / "task_client_v1.py")]
    return [str(npm.NODE), str(FOLDER / "task_client_v1.mjs"), str(npm.install_package(npm.SDK))]


async def run_client(sdk: str, url: str, key: str, names: Json) -> Json:
    process = await asyncio.create_subprocess_exec(
        *_client_command(sdk), url, key, json.dumps(names), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            output, error = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode == 0, error.decode()
    return json.loads(output)
