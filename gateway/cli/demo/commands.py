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


@demos.command()
def roblox(folder: Folder = None, as_json: AsJson = False) -> None:
    """Plant a small wood in a Studio without a screen, by the real Studio plugin."""
    _show("backends.roblox.demo", folder, as_json)


@demos.command()
def godot(
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="PROGRAM", envvar="GODOT_PATH", help="The Godot 4 to use; else that on PATH."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Make a small game from an empty folder, and run it on a real Godot engine."""
    _show("backends.godot.demo", folder, as_json, engine=engine)


def _show(module: str, folder: Path | None, as_json: bool, **given: str | None) -> None:
    from gateway.cli.demo.runner import show
    from gateway.telemetry.log import set_up

    # The gateway's own lines stay out of the picture.
    set_up("error", "text")
    show(module, folder, as_json, **given)
