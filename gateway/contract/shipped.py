"""Description of the backend modules that ship: `backends/shipped.py` lists them.

Used by the default settings, `gatehouse init` and `gatehouse demo`.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DemoOption:
    """An option of a demo: `--name`, passed to its `prepare` as a keyword argument."""

    name: str
    metavar: str
    help: str
    variable: str | None = None
    """Environment variable that sets it."""


@dataclass(frozen=True, slots=True)
class ShippedDemo:
    """The command `gatehouse demo NAMESPACE`."""

    module: str
    help: str
    options: tuple[DemoOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedBackend:
    """A module that ships."""

    namespace: str
    module: str
    entry: str
    """Its entry in a settings file that `gatehouse init` writes."""
    summary: str
    packages: tuple[str, ...] = ()
    """Packages that it needs besides those of the base installation."""
    default: bool = True
    """Whether it is served if the settings have no `backends`."""
    demo: ShippedDemo | None = None


def shipped_backends() -> Mapping[str, ShippedBackend]:
    """The modules that ship, by namespace; none if they are not installed."""
    try:
        listed: tuple[ShippedBackend, ...] = importlib.import_module("backends.shipped").BACKENDS
    except ModuleNotFoundError:
        return {}
    return {each.namespace: each for each in listed}
