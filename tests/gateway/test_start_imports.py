"""Modules that a start with the default settings does not import: they cost time and memory."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, gc, sys
import gateway.cli.serve as command
from gateway.cli.main import app

async def stop(gateway, sockets, reload):
    print("collects:", gc.isenabled())
    print("modules:", *sys.modules)

command.serve_on = stop
app(["serve", "--port", "0"])
"""

UNUSED = {
    "asyncpg", "grpc", "google.protobuf", "hugo", "matplotlib", "numpy", "opentelemetry.exporter", "opentelemetry.sdk",
    "pymarkdown", "redis", "requests", "ruamel.yaml", "tree_sitter", "valkey",
}  # fmt: skip


def test_start_with_default_settings_imports_no_module_that_it_does_not_use(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GATEHOUSE")}
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env={**env, "PYTHONPATH": root}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # Disabled during the start; the runner, which this test replaces, enables it.
    assert "collects: False" in lines
    (modules,) = (set(line.split()[1:]) for line in lines if line.startswith("modules:"))
    assert "gateway.app" in modules
    assert UNUSED & modules == set()
