"""The values of all sources on one heap, before they are checked."""

from typing import cast

from gateway.settings.values import Tree, Where


class SettingsError(Exception):
    """Settings that cannot be used; `lines` says where and why, one mistake each, never with a value from them."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class MergedValues:
    """The values, of each where it was written, and the mistakes found so far."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.problems: list[str] = []
        self.origins: dict[Where, str] = {}
        self.absent: dict[str, list[str]] = {}
        self.file = "settings"

    def add(self, values: Tree) -> None:
        _merge(self.tree, values)

    def origin(self, at: Where) -> str:
        """Where it was written; else what is below it, else what it is part of, else the file."""
        return self.place(at) or self.file

    def place(self, at: Where) -> str | None:
        """The same, if any of it was written at all."""
        below = (place for key, place in self.origins.items() if key[: len(at)] == at)
        above = (self.origins.get(at[:end]) for end in range(len(at), 0, -1))
        return self.origins.get(at) or next(below, None) or next(filter(None, above), None)


def _merge(base: Tree, over: Tree) -> None:
    for key, value in over.items():
        below = base.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _merge(cast("Tree", below), cast("Tree", value))
        else:
            base[key] = value
