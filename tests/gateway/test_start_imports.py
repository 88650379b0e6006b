"""A start imports what the first calls need. Everything listed here is imported at its first use."""

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import asyncio, os, sys
import gateway.cli.main, gateway.cli.serve
from gateway.app import Gateway
from gateway.settings import load
from gateway.telemetry.log import LogLines

async def start():
    lines = LogLines(sys.stderr, asyncio.get_running_loop().call_later)
    gateway = await Gateway.open(load(None, {}), lines, 8080)
    print(*sys.modules, sep="\\n")
    await gateway.close()

asyncio.run(start())
"""

DEFERRED = (
    "alembic",
    "asyncpg",
    "authlib",
    "backends.knowledge.tool_dispatcher",
    "backends.launch.tool_dispatcher",
    "fastapi",
    "gateway.auth.server.authorization_server",
    "gateway.cli.doctor",
    "gateway.console.routes",
    "gateway.upstream.openapi",
    "griffe",
    "grpc",
    "numpy",
    "onnxruntime",
    "opentelemetry.exporter",
    "opentelemetry.sdk",
    "redis",
    "referencing",
    "requests",
    "ruamel",
    "scim2_models",
    "slowapi",
    "snowballstemmer",
    "tree_sitter",
    "wordllama",
)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules that a start with the default settings imports."""
    root, folder = Path(__file__).parents[2], tmp_path_factory.mktemp("start")
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=folder, env={"PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("module", DEFERRED)
def test_start_with_the_default_backends_does_not_import(imported: set[str], module: str) -> None:
    assert "backends.core" in imported
    assert not {each for each in imported if each == module or each.startswith(f"{module}.")}
