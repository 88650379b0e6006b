"""Where a candidate's time goes: py-spy beside a steady load, the functions with the most time of their own."""

import asyncio
import shutil
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.candidates import Candidate, NotStarted, running
from bench.driver import drive, open_lanes
from bench.process import Cores
from bench.run import first_call

_SECONDS = 8
_CONNECTIONS = 16
_TOP = 25
_INSTALL = "py-spy is not installed: uv pip install --python .venv/bin/python py-spy"


async def profile(candidate: Candidate, cores: Cores, folder: Path, console: Console) -> bool:
    """Print the top functions by self time. False, with the reason printed, when that cannot be done."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        console.print(_INSTALL)
        return False
    try:
        with running(candidate, folder / candidate.name, cores) as run:
            await first_call(run)
            out = folder / "stacks.txt"
            lanes = await open_lanes([run.door] * _CONNECTIONS)
            await drive(lanes, seconds=1.0)
            load = asyncio.create_task(drive(lanes, seconds=_SECONDS + 1))
            failure = await _record(spy, run.server.pid, out)
            tally = await load
    except NotStarted as exc:
        console.print(f"{candidate.name}: {exc}")
        return False
    if failure is not None:
        console.print(failure, markup=False)
        return False
    _show(console, candidate, out, tally.calls, tally.errors)
    return True


async def _record(spy: str, pid: int, out: Path) -> str | None:
    """Sample the process into `out`; what py-spy said when it failed."""
    argv = [spy, "record", "--pid", str(pid), "--duration", str(_SECONDS), "--rate", "400", "--function", "--gil"]
    argv += ["--format", "raw", "--output", str(out)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    return None if process.returncode == 0 else f"py-spy failed: {said.decode(errors='replace').strip()}"


def self_times(stacks: str) -> Counter[str]:
    """Samples by the innermost function, from py-spy's raw format: `outer (file:line);inner (file:line) count`."""
    own: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        own[stack.rpartition(";")[2]] += int(count)
    return own


def _show(console: Console, candidate: Candidate, out: Path, calls: int, errors: int) -> None:
    own = self_times(out.read_text())
    every = sum(own.values())
    title = f"{candidate.title}: self time over {calls} calls, {errors} errors, {every} samples"
    table = Table("function", title=title)
    table.add_column("share", justify="right")
    for function, samples in own.most_common(_TOP):
        table.add_row(function, f"{samples / every:.1%}")
    console.print(table)
