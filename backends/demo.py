"""What a demo of a backend is handed, and what it must have: `gatehouse demo NAME` plays `backends.NAME.demo`.

Such a module has three things: `TITLE`, one line of what it shows; `async prepare(folder) -> Json`, which makes what
the demo needs below that folder and gives its entries of `backends:`; and `async play(demo) -> Json`, which gives the
facts that `--json` prints. What the command took for it is given to `prepare` by name. What cannot be
shown, and why, is a `Fault`: its message ends the command.
"""

from pathlib import Path
from typing import Protocol

from gateway.contract import Json


class Demo(Protocol):
    """A gateway of the demo's own, served on this machine until the demo ends."""

    @property
    def folder(self) -> Path:
        """For everything the demo makes; removed with it unless the user asked to keep it."""
        ...

    @property
    def files(self) -> Path:
        """The tenant's own folder under `files_dir`, where backends keep what must be files."""
        ...

    @property
    def base(self) -> str:
        """The gateway's address, such as `http://127.0.0.1:41234`."""
        ...

    async def call(self, tool: str, arguments: Json) -> Json:
        """A real `tools/call`; its structured content, or the whole result where it has none.

        Raises `Fault` when the call fails: a demo has no failure that it does not ask for by `refusal`.
        """
        ...

    async def refusal(self, tool: str, arguments: Json) -> Json:
        """The same for a call that should fail: the error object. Raises `Fault` when it succeeds."""
        ...

    async def key(self, *scopes: str) -> str:
        """A key of the tenant for a peer that connects by itself."""
        ...

    def step(self, text: str, detail: str = "") -> None:
        """Show what is done now, such as the tool that is called."""
        ...

    def note(self, text: str, detail: str = "") -> None:
        """Show what came of it."""
        ...
