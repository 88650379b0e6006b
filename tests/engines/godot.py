"""Provides a real Godot 4 for the tests: Debian packages unpacked in `.venv/engines/godot`, without installation.

`python -m tests.engines.godot` prints the program's path. It downloads from the mirror that apt uses.
"""

import concurrent.futures
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

PREFIX = Path(__file__).parents[2] / ".venv" / "engines" / "godot"
PROGRAM = PREFIX / "godot"

SUITE = "forky"
"""The oldest suite with Godot 4."""
ROOTS = ("godot", "libfontconfig1", "libc6")
LIBRARIES = "usr/lib/x86_64-linux-gnu"

_LAUNCHER = """#!/bin/sh
# The unpacked packages bring their own C library and loader.
here="$(cd "$(dirname "$0")" && pwd)"
libs="$here/root/{libraries}"
exec "$libs/ld-linux-x86-64.so.2" --library-path "$libs:$libs/pulseaudio" "$here/root/usr/bin/godot" "$@"
"""


class CannotInstall(Exception):
    """Godot cannot be provided on this machine; the message gives the reason."""


def installed() -> Path | None:
    return PROGRAM if PROGRAM.exists() else None


def install() -> Path:
    """Return the program's path; download and unpack Godot first if it is missing."""
    if PROGRAM.exists():
        return PROGRAM
    if os.uname().machine != "x86_64" or shutil.which("dpkg-deb") is None:
        raise CannotInstall("the packages are for Debian-like systems on x86_64")
    mirror = _mirror()
    index = _index(mirror)
    PREFIX.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PREFIX.parent) as scratch:
        staging = Path(scratch) / "godot"
        _unpack(mirror, _resolve_dependencies(index), staging / "root", Path(scratch))
        launcher = staging / "godot"
        launcher.write_text(_LAUNCHER.format(libraries=LIBRARIES))
        launcher.chmod(0o755)
        subprocess.run([launcher, "--headless", "--version"], check=True, env={"HOME": scratch}, stdout=sys.stderr)
        shutil.rmtree(PREFIX, ignore_errors=True)
        staging.rename(PREFIX)
    return PROGRAM


def _mirror() -> str:
    if mirror := os.environ.get("GATEHOUSE_DEBIAN_MIRROR"):
        return mirror.rstrip("/")
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        if source.is_file() and (found := re.search(r"https?://\S+/debian/?(?=\s)", _without_comments(source))):
            return found[0].rstrip("/")
    raise CannotInstall("no Debian mirror found in the apt sources; set GATEHOUSE_DEBIAN_MIRROR")


def _without_comments(source: Path) -> str:
    return "".join(line for line in source.read_text().splitlines(keepends=True) if not line.startswith("#"))


def _index(mirror: str) -> dict[str, dict[str, str]]:
    """Return package name -> fields. A virtual package maps to the first package that provides it."""
    raw = lzma.decompress(_fetch(f"{mirror}/dists/{SUITE}/main/binary-amd64/Packages.xz")).decode()
    found: dict[str, dict[str, str]] = {}
    provided: dict[str, dict[str, str]] = {}
    for block in raw.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.MULTILINE))
        if name := fields.get("Package"):
            found.setdefault(name, fields)
            for virtual in _package_names(fields.get("Provides", "")):
                provided.setdefault(virtual, fields)
    return {**provided, **found}


def _package_names(relation: str) -> list[str]:
    """Return the first alternative of each dependency, without version and architecture."""
    return [re.split(r"[ (:|]", part.strip())[0] for part in relation.split(",") if part.strip()]


def _resolve_dependencies(index: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    selected: dict[str, dict[str, str]] = {}
    pending = list(ROOTS)
    while pending:
        fields = index.get(pending.pop())
        if fields is not None and fields["Package"] not in selected:
            selected[fields["Package"]] = fields
            pending += _package_names(f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}")
    return list(selected.values())


def _unpack(mirror: str, packages: list[dict[str, str]], root: Path, scratch: Path) -> None:
    def unpack(fields: dict[str, str]) -> None:
        raw = _fetch(f"{mirror}/{fields['Filename']}")
        if hashlib.sha256(raw).hexdigest() != fields["SHA256"]:
            raise CannotInstall(f"the checksum of {fields['Package']} does not match the index")
        deb = scratch / f"{fields['Package']}.deb"
        deb.write_bytes(raw)
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        deb.unlink()

    root.mkdir(parents=True)
    # base-files contains /lib as a symbolic link, so unpack it before packages that put files there.
    packages.sort(key=lambda fields: fields["Package"] != "base-files")
    unpack(packages[0])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(unpack, packages[1:]))


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


if __name__ == "__main__":
    print(install())
