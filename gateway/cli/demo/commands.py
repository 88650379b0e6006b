"""The demos there are. Each is a module of its backend, loaded by name when it is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.options import AsJson

Folder = Annotated[
    Path | None,
    typer.Option("--folder", metavar="FOLDER", help="Keep all that is made in this new folder, to look at it."),
]

demos = typer.Typer(help="Show a backend at work, on a gateway of its own.")


@demos.command()
def launch(folder: Folder = None, as_json: AsJson = False) -> None:
    """Take a small product's repository from nothing to a pull request."""
    _show("backends.launch.demo", folder, as_json)


def _show(module: str, folder: Path | None, as_json: bool) -> None:
    from gateway.cli.demo.runner import show
    from gateway.telemetry.log import set_up

    # The gateway's own lines stay out of the picture.
    set_up("error", "text")
    show(module, folder, as_json)
