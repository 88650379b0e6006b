"""Runs `gatehouse serve` in a subprocess that a test kills. Imports little: each subprocess imports it again."""

import os
import sys

from gateway.__main__ import main


def serve(config: str) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.argv = ["gatehouse", "serve", "--config", config]
    main()
