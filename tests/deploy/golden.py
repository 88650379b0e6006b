"""`python -m tests.deploy.golden`: keep what the chart renders now; look at the difference before you commit it."""

from pathlib import Path
from typing import Final

from tests.deploy.chart import CASES, golden

FOLDER: Final = Path(__file__).parent / "golden"


def kept(case: str) -> Path:
    return FOLDER / f"{case}.yaml"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        kept(case).write_text(golden(case), "utf-8")
