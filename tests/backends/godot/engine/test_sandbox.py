"""Walls around what a project runs: real ones, of this machine's kernel."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from backends.godot.engine.process import finish
from backends.godot.engine.sandbox import Walls, found
from gateway.errors import Fault, Kind
from tests.missing import missing

INSIDE = Walls("auto", 1024)


@pytest.fixture(autouse=True)
def walls() -> None:
    if not all(found().values()):
        reason = f"this kernel lacks walls: {found()}"
        missing(reason)


async def shell(folder: Path, script: str, walls: Walls = INSIDE) -> tuple[int, str]:
    """What a shell in the engine's place says: its code, and its words."""
    for name in ("project", "home"):
        (folder / name).mkdir(exist_ok=True)
    done = await finish(["/bin/sh", "-c", script], folder / "project", folder / "home", 30, walls)
    return done.code, done.out + done.err


async def test_it_writes_in_its_project_and_home_and_nowhere_else(tmp_path: Path) -> None:
    assert await shell(tmp_path, "echo a > made && echo b > $HOME/kept && echo c > $TMPDIR/t && cat made") == (0, "a")
    for place in (f"{tmp_path}/outside", "../outside", "/tmp/outside", "/etc/outside"):
        code, said = await shell(tmp_path, f"echo x > {place}")
        assert code, said
    assert not (tmp_path / "outside").exists()


async def test_it_reads_the_system_and_nothing_of_other_projects(tmp_path: Path) -> None:
    secret = tmp_path / "other" / "project.godot"
    secret.parent.mkdir()
    secret.write_text("hush")
    for look in (f"cat {secret}", f"ls {tmp_path}", f"ls {Path.home()}", "cat /etc/hostname"):
        code, said = await shell(tmp_path, look)
        assert code, look
        assert "hush" not in said
    (tmp_path / "project" / "link").symlink_to(secret)
    assert (await shell(tmp_path, "cat link"))[0]
    assert await shell(tmp_path, "test -r /usr/bin/env") == (0, "")


async def test_it_reads_what_the_operator_lets_it_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "font").write_text("seen")
    assert (await shell(tmp_path, f"cat {shared}/font"))[0]
    walls = replace(INSIDE, reads=(shared,))
    assert await shell(tmp_path, f"cat {shared}/font", walls) == (0, "seen")
    assert (await shell(tmp_path, f"echo x > {shared}/font", walls))[0]


async def test_it_sees_and_signals_no_process_outside(tmp_path: Path) -> None:
    for attempt in (f"cat /proc/{os.getpid()}/environ", f"kill -0 {os.getpid()}"):
        assert (await shell(tmp_path, attempt))[0], attempt


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("walls", "reached"), [(INSIDE, False), (INSIDE.with_network(), True)])
async def test_it_has_a_network_only_where_that_is_said(tmp_path: Path, port: int, walls: Walls, reached: bool) -> None:
    code, said = await shell(tmp_path, f"exec bash -c '</dev/tcp/127.0.0.1/{port}'", walls)
    assert (code == 0) is reached, said


async def test_it_is_bounded(tmp_path: Path) -> None:
    code, said = await shell(tmp_path, "ulimit -c; ulimit -v; ulimit -f; nice")
    assert (code, said.split()) == (0, ["0", str(1024 * 1024), str(8 * 1024 * 1024), str(min(os.nice(0) + 5, 19))])


async def test_without_walls_only_the_limits_stand(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("seen")
    assert await shell(tmp_path, "cat ../outside; ulimit -c", Walls()) == (0, "seen0")


async def test_it_ends_with_the_gateway_however_that_ends(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(_STARTER)
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


_STARTER = """
import asyncio, sys
from pathlib import Path
from backends.godot.engine.process import launch
from backends.godot.engine.sandbox import Walls

async def main():
    folder = Path(sys.argv[1])
    process = await launch(["/bin/sleep", "1000"], folder, folder, Walls("auto"))
    print(process.pid, flush=True)
    await process.wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("missing", ["files", "network"])
def test_where_a_wall_must_stand_and_cannot_nothing_runs(missing: str) -> None:
    def have() -> dict[str, bool]:
        return {"files": True, "network": True, missing: False}

    Walls("auto").check(have)
    Walls("require").check()
    with pytest.raises(Fault) as refused:
        Walls("require").check(have)
    assert refused.value.kind is Kind.UNSUPPORTED
