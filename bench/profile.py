"""Profiles a candidate with py-spy under steady load and lists the functions with the most self time."""

import asyncio
import shutil
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.candidates import Candidate, StartError, start_candidate
from bench.driver import drive, open_connections
from bench.process import Cores
from bench.run import wait_for_first_call

_SECONDS = 8
_CONNECTIONS = 16
_TOP = 25
_INSTALL = "py-spy is not installed. Run: uv pip install --python .venv/bin/python py-spy"


async def profile(candidate: Candidate, cores: Cores, folder: Path, console: Console) -> bool:
    """Print the top functions by self time. On failure, print the reason and return False."""
    py_spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if py_spy is None:
        console.print(_INSTALL)
        return False
    try:
        with start_candidate(candidate, folder / candidate.name, cores) as run:
            await wait_for_first_call(run)
            out = folder / "stacks.txt"
            connections = await open_connections([run.endpoint] * _CONNECTIONS)
            await drive(connections, seconds=1.0)
            load = asyncio.create_task(drive(connections, seconds=_SECONDS + 1))
            failure = await _record(py_spy, run.server.pid, out)
            tally = await load
    except StartError as exc:
        console.print(f"{candidate.name}: {exc}")
        return False
    if failure is not None:
        console.print(failure, markup=False)
        return False
    _show(console, candidate, out, tally.calls, tally.errors)
    return True


async def _record(py_spy: str, pid: int, out: Path) -> str | None:
    """Sample the process into `out`. Returns the output of py-spy if it fails, else None."""
    argv = [py_spy, "record", "--pid", str(pid), "--duration", str(_SECONDS), "--rate", "400", "--function", "--gil"]
    argv += ["--format", "raw", "--output", str(out)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    output, _ = await process.communicate()
    return None if process.returncode == 0 else f"py-spy failed: {output.decode(errors='replace').strip()}"


def self_times(stacks: str) -> Counter[str]:
    """Count samples by innermost function, from py-spy's raw format: `outer (file:line);inner (file:line) count`."""
    self_samples: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        self_samples[stack.rpartition(";")[2]] += int(count)
    return self_samples


def _show(console: Console, candidate: Candidate, out: Path, calls: int, errors: int) -> None:
    self_samples = self_times(out.read_text())
    total = sum(self_samples.values())
    title = f"{candidate.title}: self time over {calls} calls, {errors} errors, {total} samples"
    table = Table("function", title=title)
    table.add_column("share", justify="right")
    for function, samples in self_samples.most_common(_TOP):
        table.add_row(function, f"{samples / total:.1%}")
    console.print(table)
