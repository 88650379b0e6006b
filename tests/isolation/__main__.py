"""`make isolation`: run all attacks and print a table. The exit code is 1 if any limit is exceeded."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.isolation.attacks import ATTACKS, HARMLESS
from tests.isolation.matrix import MAX_RATIO, open_site, run_attacks


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", help="only these attacks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of each round")
    options = parser.parse_args()
    names = options.attacks or [name for name in ATTACKS if name != HARMLESS]
    passed = True
    print("| tenant A | steps of A | calls of B | failed | p95 of B | with harmless calls | ratio |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="gatehouse-isolation-") as folder:
        async with open_site(Path(folder)) as site:
            async for each in run_attacks(site, names, options.rounds, options.seconds):
                print(
                    f"| {each.name} | {each.steps} | {each.calls} | {each.failed} | {each.p95 * 1000:.1f} ms |"
                    f" {each.control_p95 * 1000:.1f} ms | {each.ratio:.2f} |",
                    flush=True,
                )
                if not each.passed:
                    passed = False
                    print(f"  limit exceeded (0 failures, ratio {MAX_RATIO:g}) {each.first_failure}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
