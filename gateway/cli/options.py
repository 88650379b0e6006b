"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; default $GATEHOUSE_CONFIG or ./gatehouse.yaml."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
