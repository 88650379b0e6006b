"""Runs the official MCP conformance suite directly against a fixture server and through the gateway.

`python -m tests.conformance [--cell NAME]` compares all cells, or those whose name contains NAME, and prints a table.
`python -m tests.conformance --alone | --module | --remote [--version VERSION] [--scenario NAME]` runs one target and
prints every check.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.conformance import suite
from tests.conformance.cells import (
    CELLS,
    DIRECT,
    Cell,
    Difference,
    compare,
    find_problems,
    format_table,
    load_expected_failures,
)
from tests.conformance.suite import Check, SuiteError
from tests.conformance.target import LOG, TargetError, gateway_over_sdk_server, gateway_server, sdk_server, tail

REFERENCE: Final = {"2025-11-25": 84, "2026-07-28": 152}
"""Number of checks that the SDK's server passes with this fixture; the gateway must pass at least as many."""


async def main(arguments: argparse.Namespace) -> int:
    # On SIGTERM, cancel the main task so that child processes are stopped.
    main_task = asyncio.current_task()
    assert main_task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main_task.cancel)
    await suite.install()
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        if arguments.alone or arguments.module or arguments.remote:
            return await _run_target(arguments, Path(name))
        return await _run_cells(arguments.cell, Path(name))


async def _run_cells(chosen: str | None, folder: Path) -> int:
    cells = [cell for cell in CELLS if chosen is None or chosen in cell.name]
    direct = {
        cell.front: await _run_cell(cell, folder) for cell in DIRECT if cell.front in {each.front for each in cells}
    }
    reasons = load_expected_failures()
    rows: list[tuple[Cell, Difference, Mapping[str, str]]] = []
    failures: list[str] = []
    for cell in cells:
        through = await _run_cell(cell, folder)
        known = reasons.get(cell.name, {})
        difference = compare(direct[cell.front], through)
        rows.append((cell, difference, known))
        problems = find_problems(difference, known)
        failures += [f"{cell.name}: {problem}" for problem in problems]
        if problems:
            _print_problems(through)
            print(f"\nEnd of the gateway's log:\n{tail(folder / cell.name / LOG)}")
    failures += [
        f"{version} direct: {short} checks fewer than the reference of {REFERENCE[version]}"
        for version, checks in direct.items()
        if (short := REFERENCE[version] - sum(check.status == "SUCCESS" for check in checks)) > 0
    ]
    print(f"\n{format_table(rows)}\n")
    for cell, _, known in rows:
        for check, reason in known.items():
            print(f"expected: {cell.name}: {check}: {reason}")
    for problem in failures:
        print(f"✗ {problem}")
    if not failures:
        print("✓ No unexpected differences.")
    return 1 if failures else 0


async def _run_cell(cell: Cell, folder: Path) -> list[Check]:
    print(f"{cell.name} …", flush=True)
    cell_folder = folder / cell.name
    cell_folder.mkdir()
    async with cell.target(cell_folder) as url:
        return await suite.run(url, cell.front, None, cell_folder / "out")


async def _run_target(arguments: argparse.Namespace, folder: Path) -> int:
    versions = [arguments.version] if arguments.version else list(REFERENCE)
    target = sdk_server if arguments.alone else gateway_over_sdk_server if arguments.remote else gateway_server
    async with target(folder) as url:
        results = {each: await suite.run(url, each, arguments.scenario, folder / each) for each in versions}
    passed = [report(version, checks, arguments.scenario) for version, checks in results.items()]
    if not all(passed):
        print(f"\nEnd of the server's log:\n{tail(folder / LOG)}")
    return 0 if all(passed) else 1


def report(version: str, checks: list[Check], only: str | None = None) -> bool:
    """Print the checks and return whether the run passed: no failures, and the reference count unless `only` is set."""
    if only and not checks:
        print(f"\n{version}: scenario {only} does not exist in this version")
        return True
    print(f"\n{version}\n{'':2}{'scenario':48}{'passed':>8}{'failed':>8}{'warned':>8}")
    for scenario in dict.fromkeys(check.scenario for check in checks):
        own_checks = [check for check in checks if check.scenario == scenario]
        tally = Counter(check.status for check in own_checks)
        mark = "✗" if tally["FAILURE"] else "✓"
        print(f"{mark} {scenario:48}{tally['SUCCESS']:>8}{tally['FAILURE']:>8}{tally['WARNING']:>8}")
        _print_problems(own_checks)
    total = Counter(check.status for check in checks)
    print(f"{version}: {total['SUCCESS']} passed, {total['FAILURE']} failed")
    short = (1 if only else REFERENCE[version]) - total["SUCCESS"]
    if short > 0:
        print(f"{version}: {short} fewer than the reference")
    return total["FAILURE"] == 0 and short <= 0


def _print_problems(checks: list[Check]) -> None:
    for check in checks:
        if check.status in ("FAILURE", "WARNING"):
            print(f"    {check.status.lower()} {check.scenario}:{check.id}: {check.message}")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--cell", help="run only the cells whose name contains this, such as 'over modern'")
    parser.add_argument("--alone", action="store_true", help="test only the SDK's server, without the gateway")
    parser.add_argument("--module", action="store_true", help="test only the gateway with a module backend")
    parser.add_argument(
        "--remote", action="store_true", help="test only the gateway with the SDK's server as a remote backend"
    )
    parser.add_argument("--version", choices=list(REFERENCE), help="test only this protocol version")
    parser.add_argument("--scenario", help="run only this scenario")
    return parser.parse_args(argv)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
    except (SuiteError, TargetError) as exc:
        sys.exit(f"{exc}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
