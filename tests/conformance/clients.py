"""Runs the suite's client scenarios on authorization, each with the matching Gatehouse client."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.conformance.child_process import child_process
from tests.conformance.suite import BIN_FOLDER, PACKAGE_FOLDER, SuiteError, node_environment

INDEX: Final = str(PACKAGE_FOLDER / "dist" / "index.js")
NOT_APPLICABLE: Final = Path(__file__).parent / "not-applicable.yaml"
_LISTED: Final = re.compile(r"^\s+- (?P<name>auth/\S+) \[(?P<versions>[^]]+)\]$", re.MULTILINE)
_NEWEST: Final = "2026-07-28"
_CONCURRENCY: Final = 2

_CALL_SERVED: Final = frozenset({"valid-bearer-token"})
_PROOFS: Final = frozenset(
    {
        "sep-1932-client-token-request-proof",
        "sep-1932-client-dpop-auth-scheme",
        "sep-1932-client-fresh-proof",
    }
)
_GATEWAY_SCENARIOS: Final = (
    "auth/client-credentials-",
    "auth/dpop",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
)
_REQUIRED_CHECKS: Final[Mapping[str, frozenset[str]]] = {
    "auth/client-credentials-basic": _CALL_SERVED | {"client-credentials-basic-auth"},
    "auth/client-credentials-jwt": _CALL_SERVED | {"client-credentials-jwt-verified"},
    "auth/dpop": _PROOFS,
    "auth/dpop-nonce": _PROOFS | {"sep-1932-client-as-nonce", "sep-1932-client-rs-nonce"},
    "auth/enterprise-managed-authorization": _CALL_SERVED
    | {"complete-flow-token-exchange", "complete-flow-jwt-bearer"},
    "auth/wif-jwt-bearer": _CALL_SERVED | {"wif-assertion-verified"},
    "auth/scope-retry-limit": frozenset({"scope-retry-limit"}),
    "auth/resource-mismatch": frozenset({"resource-mismatch-rejected"}),
    "auth/iss-supported-missing": frozenset({"sep-2468-client-reject-missing-iss"}),
    "auth/iss-wrong-issuer": frozenset({"sep-2468-client-compare-iss-supported"}),
    "auth/iss-unexpected": frozenset({"sep-2468-client-compare-iss-unadvertised"}),
    "auth/iss-normalized": frozenset({"sep-2468-client-no-normalization"}),
    "auth/metadata-issuer-mismatch": frozenset({"sep-2468-client-validate-metadata-issuer"}),
}
"""Checks that must pass, for each scenario that does not simply end with a successful call.

Without this list a check that the suite never ran would go unnoticed.
"""


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    scenario: str
    version: str

    @property
    def client(self) -> str:
        """The client under test: `gateway` for its own credentials and users' accounts, `stdio` for user sign-in."""
        return "gateway" if self.scenario.startswith(_GATEWAY_SCENARIOS) else "stdio"

    @property
    def required_checks(self) -> frozenset[str]:
        return _REQUIRED_CHECKS.get(self.scenario, _CALL_SERVED)


@dataclass(frozen=True, slots=True)
class Outcome:
    run: ScenarioRun
    tally: Mapping[str, int]
    failure: str = ""


_MODULES: Final = {"gateway": "tests.conformance.gateway_under_test", "stdio": "tests.conformance.stdio_under_test"}


async def run_client_scenarios(folder: Path, only: Collection[str] = ()) -> list[str]:
    """Run all scenarios, or only those in `only`, print a table, and return the failures."""
    listed = parse_scenarios(await _run_suite("list"))
    reasons: dict[str, str] = yaml.safe_load(NOT_APPLICABLE.read_text()) or {}
    runs = [run for run in listed if run.scenario in (only or {run.scenario} - reasons.keys())]
    semaphore = asyncio.Semaphore(_CONCURRENCY)
    outcomes = await asyncio.gather(
        *(_run_scenario(run, folder / f"{number}", semaphore) for number, run in enumerate(runs))
    )
    print(f"\n{'':2}{'scenario':44}{'version':12}{'client':10}{'passed':>8}{'failed':>8}{'warned':>8}")
    for outcome in outcomes:
        run, tally = outcome.run, outcome.tally
        counts = "".join(f"{tally.get(status, 0):>8}" for status in ("SUCCESS", "FAILURE", "WARNING"))
        print(f"{'✗' if outcome.failure else '✓'} {run.scenario:44}{run.version:12}{run.client:10}{counts}")
    for scenario, reason in reasons.items():
        print(f"not run: {scenario}: {reason}")
    print(f"{len(runs)} runs, {sum(outcome.tally.get('SUCCESS', 0) for outcome in outcomes)} checks passed")
    stale = sorted(reasons.keys() - {run.scenario for run in listed})
    return [outcome.failure for outcome in outcomes if outcome.failure] + [
        f"{NOT_APPLICABLE.name}: the suite has no {scenario}" for scenario in stale
    ]


def parse_scenarios(output: str) -> list[ScenarioRun]:
    """Parse the suite's scenario list: one run for each scenario and revision."""
    runs = list(_runs(output))
    if not runs:
        raise SuiteError(f"The suite lists no client scenario on authorization:\n{output}")
    return runs


def _runs(output: str) -> Iterator[ScenarioRun]:
    for found in _LISTED.finditer(output):
        for version in found["versions"].split(","):
            yield ScenarioRun(found["name"], _NEWEST if version == "extension" else version)


async def _run_scenario(run: ScenarioRun, out: Path, semaphore: asyncio.Semaphore) -> Outcome:
    command = f"{sys.executable} -m {_MODULES[run.client]}"
    options = ("--command", command, "--scenario", run.scenario, "--spec-version", run.version, "--force")
    async with semaphore:
        output = await _run_suite(
            "client", *options, "--timeout", "90000", "--output-dir", str(out), with_exit_code=True
        )
    checks = [each for file in out.glob("**/checks.json") for each in json.loads(file.read_bytes())]
    tally = Counter(each["status"] for each in checks)
    passed = {each["id"] for each in checks if each["status"] == "SUCCESS"}
    if output.startswith("0\n") and not tally["FAILURE"] and not tally["WARNING"] and run.required_checks <= passed:
        return Outcome(run, tally)
    problems = [f"{each['id']}: {each['description']}" for each in checks if each["status"] in ("FAILURE", "WARNING")]
    problems += [f"{check}: not run" for check in run.required_checks - passed]
    return Outcome(run, tally, "\n    ".join([f"{run.scenario} {run.version}", *problems]) + f"\n{output}")


async def _run_suite(*arguments: str, with_exit_code: bool = False) -> str:
    async with child_process(
        str(BIN_FOLDER / "node"), INDEX, *arguments, env=node_environment(), stdout=PIPE, stderr=STDOUT
    ) as node:
        printed, _ = await node.communicate()
    output = printed.decode(errors="replace")
    return f"{node.returncode}\n{output}" if with_exit_code else output
