"""The official MCP conformance suite, through the gateway or, for reference, against the SDK's own server.

`python -m tests.conformance [--alone | --remote] [--version 2025-11-25|2026-07-28] [--scenario NAME]`
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.conformance import suite
from tests.conformance.suite import Check, SuiteError
from tests.conformance.target import LOG, TargetError, alone, gateway, remote, tail

REFERENCE: Final = {"2025-11-25": 84, "2026-07-28": 152}
"""Checks that the SDK's own server passes with this fixture; the gateway may not pass fewer."""


async def main(arguments: argparse.Namespace) -> int:
    # Ended from outside, it still ends what it started.
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    versions = [arguments.version] if arguments.version else list(REFERENCE)
    target = alone if arguments.alone else remote if arguments.remote else gateway
    await suite.install()
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
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
        for check in mine:
            if check.status in ("FAILURE", "WARNING"):
                print(f"    {check.status.lower()} {check.id}: {check.message}")
    total = Counter(check.status for check in checks)
    print(f"{version}: {total['SUCCESS']} passed, {total['FAILURE']} failed")
    short = (1 if only else REFERENCE[version]) - total["SUCCESS"]
    if short > 0:
        print(f"{version}: {short} fewer than the reference")
    return total["FAILURE"] == 0 and short <= 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--alone", action="store_true", help="the SDK's own server in place of the gateway")
    parser.add_argument("--remote", action="store_true", help="through the gateway to the SDK's own server")
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
