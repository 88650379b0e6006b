"""The real engines that tests run: `python -m tests.engines` fetches whichever are missing."""

import sys

from tests.engines import godot

if __name__ == "__main__":
    try:
        print(godot.installed() or godot.install())
    except godot.CannotInstall as exc:
        sys.exit(f"no Godot: {exc}")
