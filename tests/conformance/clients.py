"""The suite's client scenarios on authorization, each tried with the client of ours that it is about."""

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

from tests.conformance.child_process import child
from tests.conformance.suite import _BIN, _HOME, SuiteError, _env

INDEX: Final = str(_HOME / "dist" / "index.js")
NOT_APPLICABLE: Final = Path(__file__).parent / "not-applicable.yaml"
_LISTED: Final = re.compile(r"^\s+- (?P<name>auth/\S+) \[(?P<versions>[^]]+)\]$", re.MULTILINE)
_NEWEST: Final = "2026-07-28"
_AT_ONCE: Final = 2

_SERVED: Final = frozenset({"valid-bearer-token"})
_DECISIVE: Final[Mapping[str, frozenset[str]]] = {
    "auth/client-credentials-basic": _SERVED | {"client-credentials-basic-auth"},
    "auth/client-credentials-jwt": _SERVED | {"client-credentials-jwt-verified"},
    "auth/scope-retry-limit": frozenset({"scope-retry-limit"}),
    "auth/resource-mismatch": frozenset({"resource-mismatch-rejected"}),
    "auth/iss-supported-missing": frozenset({"sep-2468-client-reject-missing-iss"}),
    "auth/iss-wrong-issuer": frozenset({"sep-2468-client-compare-iss-supported"}),
    "auth/iss-unexpected": frozenset({"sep-2468-client-compare-iss-unadvertised"}),
    "auth/iss-normalized": frozenset({"sep-2468-client-no-normalization"}),
    "auth/metadata-issuer-mismatch": frozenset({"sep-2468-client-validate-metadata-issuer"}),
}
"""Checks that must be among those passed, for each scenario that does not end with a call that is served: one that was
never made would not be missed otherwise."""


@dataclass(frozen=True, slots=True)
class Run:
    scenario: str
    version: str

    @property
    def client(self) -> str:
        """The gateway has a token of its own; a person signs in with the command."""
        return "gateway" if self.scenario.startswith("auth/client-credentials-") else "stdio"

    @property
    def decisive(self) -> frozenset[str]:
        return _DECISIVE.get(self.scenario, _SERVED)


@dataclass(frozen=True, slots=True)
class Outcome:
    run: Run
    tally: Mapping[str, int]
    complaint: str = ""


_MODULES: Final = {"gateway": "tests.conformance.gateway_under_test", "stdio": "tests.conformance.stdio_under_test"}


async def try_clients(folder: Path, only: Collection[str] = ()) -> list[str]:
    """Run all of them, or those only, print a table, and return what is wrong."""
    listed = _listed(await _said("list"))
    reasons: dict[str, str] = yaml.safe_load(NOT_APPLICABLE.read_text())
    runs = [run for run in listed if run.scenario in (only or {run.scenario} - reasons.keys())]
    turns = asyncio.Semaphore(_AT_ONCE)
    outcomes = await asyncio.gather(*(_try(run, folder / f"{number}", turns) for number, run in enumerate(runs)))
    print(f"\n{'':2}{'scenario':44}{'version':12}{'client':10}{'passed':>8}{'failed':>8}{'warned':>8}")
    for outcome in outcomes:
        run, tally = outcome.run, outcome.tally
        counts = "".join(f"{tally.get(status, 0):>8}" for status in ("SUCCESS", "FAILURE", "WARNING"))
        print(f"{'✗' if outcome.complaint else '✓'} {run.scenario:44}{run.version:12}{run.client:10}{counts}")
    for scenario, reason in reasons.items():
        print(f"not run: {scenario}: {reason}")
    print(f"{len(runs)} runs, {sum(outcome.tally.get('SUCCESS', 0) for outcome in outcomes)} checks passed")
    stale = sorted(reasons.keys() - {run.scenario for run in listed})
    return [outcome.complaint for outcome in outcomes if outcome.complaint] + [
        f"{NOT_APPLICABLE.name}: the suite has no {scenario}" for scenario in stale
    ]


def _listed(words: str) -> list[Run]:
    """Each scenario in each revision that has it."""
    runs = list(_runs(words))
    if not runs:
        raise SuiteError(f"The suite lists no client scenario on authorization:\n{words}")
    return runs


def _runs(words: str) -> Iterator[Run]:
    for found in _LISTED.finditer(words):
        for version in found["versions"].split(","):
            yield Run(found["name"], _NEWEST if version == "extension" else version)


async def _try(run: Run, out: Path, turns: asyncio.Semaphore) -> Outcome:
    command = f"{sys.executable} -m {_MODULES[run.client]}"
    asked = ("--command", command, "--scenario", run.scenario, "--spec-version", run.version, "--force")
    async with turns:
        said = await _said("client", *asked, "--timeout", "90000", "--output-dir", str(out), code_too=True)
    checks = [each for file in out.glob("**/checks.json") for each in json.loads(file.read_bytes())]
    tally = Counter(each["status"] for each in checks)
    passed = {each["id"] for each in checks if each["status"] == "SUCCESS"}
    if said.startswith("0\n") and not tally["FAILURE"] and not tally["WARNING"] and run.decisive <= passed:
        return Outcome(run, tally)
    wrong = [f"{each['id']}: {each['description']}" for each in checks if each["status"] in ("FAILURE", "WARNING")]
    wrong += [f"{check}: never made" for check in run.decisive - passed]
    return Outcome(run, tally, "\n    ".join([f"{run.scenario} {run.version}", *wrong]) + f"\n{said}")


async def _said(*arguments: str, code_too: bool = False) -> str:
    async with child(str(_BIN / "node"), INDEX, *arguments, env=_env(), stdout=PIPE, stderr=STDOUT) as node:
        said, _ = await node.communicate()
    words = said.decode(errors="replace")
    return f"{node.returncode}\n{words}" if code_too else words
