"""Options that several commands share."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.settings import Settings, load

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; default $GATEHOUSE_CONFIG or ./gatehouse.yaml."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def read_settings(config: Path | None) -> Settings:
    """The settings; the modules they name may lie beside their file or in the working folder."""
    settings = load(config)
    make_importable(settings)
    return settings


def make_importable(settings: Settings) -> None:
    # Last, so that no file there can stand in for an installed package.
    for folder in (settings.source.parent if settings.source else Path(), Path()):
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.append(place)
