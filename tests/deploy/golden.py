"""`python -m tests.deploy.golden`: regenerate the golden files of the chart. Review the diff before you commit it."""

from pathlib import Path
from typing import Final

from tests.deploy.chart import CASES, golden

FOLDER: Final = Path(__file__).parent / "golden"


def golden_file(case: str) -> Path:
    return FOLDER / f"{case}.yaml"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        golden_file(case).write_text(golden(case), "utf-8")
