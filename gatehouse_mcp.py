"""The `gatehouse` command. Checks that `gateway` and `backends` are the packages of this installation, then runs it.

Both names are common. Without the check, a package of another distribution or a folder on PYTHONPATH would be imported
instead, and the command would fail with an unrelated import error.
"""

import importlib.util
import sys
from pathlib import Path

PACKAGES = ("gateway", "backends")


def main() -> None:
    """Run the command; exit with 1 and one line for each package that another one hides."""
    if errors := find_shadowed():
        for error in errors:
            print(f"gatehouse: {error}", file=sys.stderr)
        sys.exit(1)
    from gateway.__main__ import main as run

    run()


def find_shadowed() -> list[str]:
    """Return an error for each package that Python would import from elsewhere."""
    here = Path(__file__).resolve().parent
    errors: list[str] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [Path(each).resolve() for each in spec.submodule_search_locations or ()]
        if spec is not None and not places and spec.origin is not None:
            places = [Path(spec.origin).resolve()]
        if spec is None or here / name not in places[:1]:
            found = f"Python imports it from {places[0]}" if places else "it is missing"
            errors.append(
                f"the package {name} of gatehouse-mcp is in {here}, but {found}; "
                "install gatehouse-mcp in an environment of its own, without PYTHONPATH"
            )
    return errors


if __name__ == "__main__":
    main()
