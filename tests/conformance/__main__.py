"""The official MCP conformance suite, direct and through the gateway, to a fixture of either era.

`python -m tests.conformance [--cell NAME]` compares all cells, or those named so, and prints one table.
`python -m tests.conformance --alone | --module | --remote [--version VERSION] [--scenario NAME]` shows one target,
check by check.
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
from tests.conformance.cells import CELLS, DIRECT, Cell, Difference, compare, expected, table, verdict
from tests.conformance.suite import Check, SuiteError
from tests.conformance.target import LOG, TargetError, alone, gateway, remote, tail

REFERENCE: Final = {"2025-11-25": 84, "2026-07-28": 152}
"""Checks that the SDK's own server passes with this fixture; the gateway may not pass fewer."""


async def main(arguments: argparse.Namespace) -> int:
    # Ended from outside, it still ends what it started.
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    await suite.install()
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        if arguments.alone or arguments.module or arguments.remote:
            return await _one(arguments, Path(name))
        return await _all(arguments.cell, Path(name))


async def _all(chosen: str | None, folder: Path) -> int:
    cells = [cell for cell in CELLS if chosen is None or chosen in cell.name]
    direct = {
        cell.front: await _checks(cell, folder) for cell in DIRECT if cell.front in {each.front for each in cells}
    }
    reasons = expected()
    rows: list[tuple[Cell, Difference, Mapping[str, str]]] = []
    wrong: list[str] = []
    for cell in cells:
        through = await _checks(cell, folder)
        known = reasons.get(cell.name, {})
        difference = compare(direct[cell.front], through)
        rows.append((cell, difference, known))
        complaints = verdict(difference, known)
        wrong += [f"{cell.name}: {complaint}" for complaint in complaints]
        if complaints:
            _details(through)
            print(f"\nThe gateway's last words:\n{tail(folder / cell.name / LOG)}")
    wrong += [
        f"{version} direct: {REFERENCE[version]} checks passed once, {short} fewer now"
        for version, checks in direct.items()
        if (short := REFERENCE[version] - sum(check.status == "SUCCESS" for check in checks)) > 0
    ]
    print(f"\n{table(rows)}\n")
    for cell, _, known in rows:
        for check, reason in known.items():
            print(f"expected: {cell.name}: {check}: {reason}")
    for complaint in wrong:
        print(f"✗ {complaint}")
    if not wrong:
        print("✓ Nothing else is lost, and nothing is added.")
    return 1 if wrong else 0


async def _checks(cell: Cell, folder: Path) -> list[Check]:
    print(f"{cell.name} …", flush=True)
    place = folder / cell.name
    place.mkdir()
    async with cell.target(place) as url:
        return await suite.run(url, cell.front, None, place / "out")


async def _one(arguments: argparse.Namespace, folder: Path) -> int:
    versions = [arguments.version] if arguments.version else list(REFERENCE)
    target = alone if arguments.alone else remote if arguments.remote else gateway
    async with target(folder) as url:
        results = {each: await suite.run(url, each, arguments.scenario, folder / each) for each in versions}
    good = [report(version, checks, arguments.scenario) for version, checks in results.items()]
    if not all(good):
        print(f"\nThe server's last words:\n{tail(folder / LOG)}")
    return 0 if all(good) else 1


def report(version: str, checks: list[Check], only: str | None = None) -> bool:
    """Print the table and the totals; whether nothing failed and, unless it was `only` one scenario, enough passed."""
    if only and not checks:
        print(f"\n{version}: {only} is not part of it")
        return True
    print(f"\n{version}\n{'':2}{'scenario':48}{'passed':>8}{'failed':>8}{'warned':>8}")
    for scenario in dict.fromkeys(check.scenario for check in checks):
        mine = [check for check in checks if check.scenario == scenario]
        tally = Counter(check.status for check in mine)
        mark = "✗" if tally["FAILURE"] else "✓"
        print(f"{mark} {scenario:48}{tally['SUCCESS']:>8}{tally['FAILURE']:>8}{tally['WARNING']:>8}")
        _details(mine)
    total = Counter(check.status for check in checks)
    print(f"{version}: {total['SUCCESS']} passed, {total['FAILURE']} failed")
    short = (1 if only else REFERENCE[version]) - total["SUCCESS"]
    if short > 0:
        print(f"{version}: {short} fewer than the reference")
    return total["FAILURE"] == 0 and short <= 0


def _details(checks: list[Check]) -> None:
    for check in checks:
        if check.status in ("FAILURE", "WARNING"):
            print(f"    {check.status.lower()} {check.scenario}:{check.id}: {check.message}")


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--cell", help="only the cells whose name holds this, such as 'over modern'")
    parser.add_argument("--alone", action="store_true", help="only the SDK's own server")
    parser.add_argument("--module", action="store_true", help="only through the gateway to a module")
    parser.add_argument("--remote", action="store_true", help="only through the gateway to the SDK's own server")
    parser.add_argument("--version", choices=list(REFERENCE), help="only this protocol version")
    parser.add_argument("--scenario", help="only this scenario")
    return parser.parse_args(words)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
    except (SuiteError, TargetError) as exc:
        sys.exit(f"{exc}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
