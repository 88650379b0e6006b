"""`gatehouse serve` for a process that is to be killed. It imports little, since each such process imports it anew."""

import os
import sys

from gateway.__main__ import main


def serve(config: str) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.argv = ["gatehouse", "serve", "--config", config]
    main()
