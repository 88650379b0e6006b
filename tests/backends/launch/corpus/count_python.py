"""Prints the public names of an installed package, as `inspect` sees them. Arguments: folder, package."""

import importlib
import inspect
import json
import pkgutil
import sys
from types import ModuleType
from typing import Any

found: set[str] = set()


def visit(module: ModuleType, root: str) -> None:
    names: Any = getattr(module, "__all__", None)
    is_package = hasattr(module, "__path__")
    for name in names if names is not None else [each for each in vars(module) if not each.startswith("_")]:
        value: Any = getattr(module, name, None)
        home = str(getattr(value, "__module__", ""))
        # Without `__all__`, a plain module offers only what it defines.
        if name.startswith("__") or home.split(".")[0] != root:
            continue
        if names is None and not is_package and home != module.__name__:
            continue
        if inspect.isclass(value):
            found.add(name)
            found.update(f"{name}.{each}" for each, item in vars(value).items() if is_public_member(each, item))
        elif inspect.isroutine(value):
            found.add(name)


def is_public_member(name: str, item: Any) -> bool:
    kinds = (property, classmethod, staticmethod)
    return not name.startswith("_") and (inspect.isfunction(item) or isinstance(item, kinds))


def walk(name: str, root: str) -> None:
    try:
        module = importlib.import_module(name)
    except Exception:
        return  # an optional dependency is missing
    visit(module, root)
    for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
        is_test = info.name in ("tests", "test", "conftest") or info.name.startswith("test_")
        if not info.name.startswith("_") and not is_test:
            walk(f"{name}.{info.name}", root)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    walk(sys.argv[2], sys.argv[2])
    print(json.dumps(sorted(found)))
