"""Writes the list of components of an environment as CycloneDX JSON: `python deploy/release/sbom.py PYTHON FILE`."""

import subprocess
import sys
from pathlib import Path


def write_sbom(python: Path, file: Path) -> None:
    """List what is installed for the interpreter, with versions and licences; without times or random ids."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    options = ["--output-reproducible", "--of", "JSON", "--mc-type", "application", "-o", str(file)]
    subprocess.run([str(tool), "environment", *options, str(python)], check=True)


if __name__ == "__main__":
    write_sbom(Path(sys.argv[1]), Path(sys.argv[2]))
