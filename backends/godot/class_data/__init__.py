"""Classes and project settings of the engine, with types and defaults.

The files are written from a real engine by `python -m tests.engines.class_data`, which a test checks.
"""

import gzip
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gateway.contract import Json

_FOLDER: Final = Path(__file__).parent


class ClassData:
    """Read on first use. Answers for classes that it does not know are empty."""

    @cached_property
    def _data(self) -> Json:
        newest = max(_FOLDER.glob("*.json.gz"), key=lambda path: [int(part) for part in path.name.split(".")[:2]])
        return json.loads(gzip.decompress(newest.read_bytes()))

    @property
    def version(self) -> str:
        return self._data["version"]

    def knows(self, name: str) -> bool:
        return name in self._data["classes"]

    def lineage(self, name: str) -> list[str]:
        """Return the class and its ancestors."""
        found: list[str] = []
        while name in self._data["classes"]:
            found.append(name)
            name = self._data["classes"][name]["parent"]
        return found

    def inherits(self, name: str, wanted: str) -> bool:
        return wanted in self.lineage(name)

    def property(self, name: str, wanted: str) -> tuple[str, str | None] | None:
        """Return (type, literal of the default) of a property, or None."""
        for each in self.lineage(name):
            if (found := self._data["classes"][each]["properties"].get(wanted)) is not None:
                return found[0], found[1]
        return None

    def properties(self, name: str) -> dict[str, tuple[str, str | None]]:
        """Return the properties of a class, those of its ancestors first."""
        found: dict[str, Any] = {}
        for each in reversed(self.lineage(name)):
            found |= self._data["classes"][each]["properties"]
        return {key: (value[0], value[1]) for key, value in found.items()}

    def signals(self, name: str) -> list[str]:
        return [signal for each in self.lineage(name) for signal in self._data["classes"][each].get("signals", ())]

    def can_instantiate(self, name: str) -> bool:
        return self.knows(name) and not self._data["classes"][name].get("abstract")

    def setting(self, key: str) -> tuple[str, str | None] | None:
        """Return (type, literal of the default) of a project setting, or None."""
        found = self._data["settings"].get(key)
        return (found[0], found[1]) if found else None
