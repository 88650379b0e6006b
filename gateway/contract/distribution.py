"""The installed distribution: its name and version. Used by commands, the server's information and telemetry."""

from importlib.metadata import version
from typing import Final

NAME: Final = "gatehouse-mcp"
"""Name on the package index. The command is `gatehouse`; that name on the index belongs to another project."""


def installed_version() -> str:
    """Return the version of the installed distribution."""
    return version(NAME)
