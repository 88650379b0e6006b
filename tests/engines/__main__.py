"""`python -m tests.engines` installs the real engines that the tests need, if they are missing."""

import sys

from tests.engines import godot

if __name__ == "__main__":
    try:
        print(godot.installed() or godot.install())
    except godot.CannotInstall as exc:
        sys.exit(f"no Godot: {exc}")
