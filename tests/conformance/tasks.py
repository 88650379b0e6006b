"""Runs the suite's ten `tasks-*` scenarios directly against a task server and through the gateway, and compares them.

`python -m tests.conformance.tasks` prints a table; the exit code is 1 if the results differ or a check fails.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.conformance import suite
from tests.conformance.cells import compare
from tests.conformance.suite import Check, SuiteError
from tests.conformance.target import TargetError, fixture_server, gateway_server

SCENARIOS: Final = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
MODULE: Final = "tests.conformance.task_backend"


@asynccontextmanager
async def _over_remote(folder: Path) -> AsyncGenerator[str]:
    behind = folder / "behind"
    behind.mkdir()
    async with (
        fixture_server(behind, MODULE) as url,
        gateway_server(folder, {"url": url, "allow_private": True}) as front,
    ):
        yield front


@asynccontextmanager
async def _over_module(folder: Path) -> AsyncGenerator[str]:
    async with gateway_server(folder, {"module": MODULE}) as front:
        yield front


@asynccontextmanager
async def _direct(folder: Path) -> AsyncGenerator[str]:
    async with fixture_server(folder, MODULE) as url:
        yield url


TARGETS: Final = {"direct": _direct, "remote": _over_remote, "module": _over_module}


async def run_target(name: str, folder: Path, scenarios: tuple[str, ...] = SCENARIOS) -> list[Check]:
    """Run the scenarios against one target."""
    folder.mkdir()
    checks: list[Check] = []
    async with TARGETS[name](folder) as url:
        for scenario in scenarios:
            checks += await suite.run(url, None, scenario, folder / scenario)
    return checks


async def main() -> int:
    await suite.install()
    with tempfile.TemporaryDirectory(prefix="conformance-tasks-") as name:
        results = {target: await run_target(target, Path(name) / target) for target in TARGETS}
    failed = False
    print(f"{'scenario':36}" + "".join(f"{target:>20}" for target in TARGETS))
    for scenario in SCENARIOS:
        cells = [Counter(each.status for each in results[target] if each.scenario == scenario) for target in TARGETS]
        print(f"{scenario:36}" + "".join(f"{_tally(cell):>20}" for cell in cells))
    for target, checks in results.items():
        for check in checks:
            if check.status in ("FAILURE", "WARNING"):
                failed = True
                print(f"✗ {target}: {check.scenario}:{check.id}: {check.message}")
        difference = compare(results["direct"], checks)
        if difference.lost or difference.added:
            failed = True
            print(f"✗ {target} differs: lost {difference.lost}, added {difference.added}")
    print("✗ Some checks failed." if failed else "✓ Equal direct and through the gateway.")
    return 1 if failed else 0


def _tally(cell: Counter[str]) -> str:
    return f"{cell['SUCCESS']} passed" + (f", {cell['SKIPPED']} skipped" if cell["SKIPPED"] else "")


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (SuiteError, TargetError) as exc:
        sys.exit(f"{exc}")
