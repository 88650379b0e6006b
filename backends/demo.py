"""The interface of backend demos: `gatehouse demo NAME` runs the module `backends.NAME.demo`.

A demo module defines three names:

- `TITLE`: one line that says what the demo shows.
- `async prepare(folder) -> Json`: creates the files that the demo needs below `folder` and returns the entries for
  `backends:`. Demo-specific command options are passed as keyword arguments.
- `async play(demo) -> Json`: runs the demo and returns the data that `--json` prints.

Either function raises `Fault` when the demo cannot run; the command prints its message and exits.
"""

from pathlib import Path
from typing import Protocol

from gateway.contract import Json


class Demo(Protocol):
    """A gateway that serves only this demo, on this machine, until the demo ends."""

    @property
    def folder(self) -> Path:
        """Folder for all files of the demo; deleted at the end unless the user asked to keep it."""
        ...

    @property
    def files(self) -> Path:
        """The tenant's folder under `files_dir`, where backends store files."""
        ...

    @property
    def base(self) -> str:
        """The gateway's base URL, such as `http://127.0.0.1:41234`."""
        ...

    async def call(self, tool: str, arguments: Json) -> Json:
        """Send a `tools/call` and return its structured content, or the whole result if there is none.

        Raises `Fault` when the call fails. Use `refusal` for a call that is expected to fail.
        """
        ...

    async def refusal(self, tool: str, arguments: Json) -> Json:
        """Send a call that is expected to fail and return the error object. Raises `Fault` when it succeeds."""
        ...

    async def key(self, *scopes: str) -> str:
        """Create an API key of the tenant, for a peer that opens its own connection."""
        ...

    def step(self, text: str, detail: str = "") -> None:
        """Print the current step, such as the tool that is called."""
        ...

    def note(self, text: str, detail: str = "") -> None:
        """Print the result of the current step."""
        ...
