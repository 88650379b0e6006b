"""The engine sandbox, tested with the kernel of this machine."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.godot.engine.process import run_to_completion
from backends.godot.engine.sandbox import Sandbox, supported_isolation
from gateway.errors import Fault, Kind
from tests.prerequisites import skip_or_fail

SANDBOX = Sandbox("auto", 1024)


@pytest.fixture(autouse=True)
def require_sandbox_support() -> None:
    if not all(supported_isolation().values()):
        reason = f"this kernel lacks sandbox support: {supported_isolation()}"
        skip_or_fail(reason)


async def run_shell(folder: Path, script: str, sandbox: Sandbox = SANDBOX) -> tuple[int, str]:
    """Run a shell script instead of the engine. Returns its exit code and output."""
    for name in ("project", "home"):
        (folder / name).mkdir(exist_ok=True)
    result = await run_to_completion(["/bin/sh", "-c", script], folder / "project", folder / "home", 30, sandbox)
    return result.exit_code, result.stdout + result.stderr


async def test_process_writes_only_in_its_project_and_home(tmp_path: Path) -> None:
    assert await run_shell(tmp_path, "echo a > made && echo b > $HOME/kept && echo c > $TMPDIR/t && cat made") == (
        0,
        "a",
    )
    for place in (f"{tmp_path}/outside", "../outside", "/tmp/outside", "/etc/outside"):
        code, output = await run_shell(tmp_path, f"echo x > {place}")
        assert code, output
    assert not (tmp_path / "outside").exists()


async def test_process_reads_the_system_but_no_other_project(tmp_path: Path) -> None:
    secret = tmp_path / "other" / "project.godot"
    secret.parent.mkdir()
    secret.write_text("hush")
    for command in (f"cat {secret}", f"ls {tmp_path}", f"ls {Path.home()}", "cat /etc/hostname"):
        code, output = await run_shell(tmp_path, command)
        assert code, command
        assert "hush" not in output
    (tmp_path / "project" / "link").symlink_to(secret)
    assert (await run_shell(tmp_path, "cat link"))[0]
    assert await run_shell(tmp_path, "test -r /usr/bin/env") == (0, "")


async def test_process_reads_folders_that_the_operator_allows(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "font").write_text("seen")
    assert (await run_shell(tmp_path, f"cat {shared}/font"))[0]
    sandbox = replace(SANDBOX, readable_paths=(shared,))
    assert await run_shell(tmp_path, f"cat {shared}/font", sandbox) == (0, "seen")
    assert (await run_shell(tmp_path, f"echo x > {shared}/font", sandbox))[0]


async def test_process_cannot_inspect_or_signal_other_processes(tmp_path: Path) -> None:
    for attempt in (f"cat /proc/{os.getpid()}/environ", f"kill -0 {os.getpid()}"):
        assert (await run_shell(tmp_path, attempt))[0], attempt


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("sandbox", "reachable"), [(SANDBOX, False), (SANDBOX.with_network(), True)])
async def test_process_reaches_the_network_only_if_allowed(
    tmp_path: Path, port: int, sandbox: Sandbox, reachable: bool
) -> None:
    code, output = await run_shell(tmp_path, f"exec bash -c '</dev/tcp/127.0.0.1/{port}'", sandbox)
    assert (code == 0) is reachable, output


async def test_resource_limits_are_set(tmp_path: Path) -> None:
    code, output = await run_shell(tmp_path, "ulimit -c; ulimit -v; ulimit -f; nice")
    assert (code, output.split()) == (0, ["0", str(1024 * 1024), str(8 * 1024 * 1024), str(min(os.nice(0) + 5, 19))])


async def test_mode_off_applies_only_resource_limits(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("seen")
    assert await run_shell(tmp_path, "cat ../outside; ulimit -c", Sandbox()) == (0, "seen0")


async def test_process_is_killed_when_the_gateway_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(_LAUNCH_SCRIPT)
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert gateway.stdout is not None
    pid = int(await gateway.stdout.readline())
    gateway.kill()
    await gateway.wait()
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
            await asyncio.sleep(0.01)


_LAUNCH_SCRIPT = """
import asyncio, sys
from pathlib import Path
from backends.godot.engine.process import launch
from backends.godot.engine.sandbox import Sandbox

async def main():
    folder = Path(sys.argv[1])
    process = await launch(["/bin/sleep", "1000"], folder, folder, Sandbox("auto"))
    print(process.pid, flush=True)
    await process.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("missing", ["files", "network"])
def test_mode_require_rejects_a_machine_without_isolation(missing: str) -> None:
    def probe() -> dict[str, bool]:
        return {"files": True, "network": True, missing: False}

    Sandbox("auto").check(probe)
    Sandbox("require").check()
    with pytest.raises(Fault) as caught:
        Sandbox("require").check(probe)
    assert caught.value.kind is Kind.UNSUPPORTED
