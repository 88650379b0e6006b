"""Merges the values of all sources before validation, and keeps their origins for error messages."""

from typing import cast

from gateway.settings.values import SettingPath, Tree


class SettingsError(Exception):
    """The settings are not valid. `lines` has one line per mistake with its position; it contains no values."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class MergedValues:
    """The merged values, the origin of each, and the mistakes found so far."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.problems: list[str] = []
        self.origins: dict[SettingPath, str] = {}
        self.aliases: dict[SettingPath, str] = {}
        """Origins of options that a variable of their module sets; they take precedence over `origins`."""
        self.missing_variables: dict[str, list[str]] = {}
        self.file = "settings"

    def add(self, values: Tree) -> None:
        _merge(self.tree, values)

    def origin(self, key_path: SettingPath) -> str:
        """The position of a setting, else of a child, else of a parent, else the file."""
        return self.find_origin(key_path) or self.file

    def find_origin(self, key_path: SettingPath) -> str | None:
        """Like `origin`, but None if neither the setting nor a child or parent was set."""
        origins = self.origins | self.aliases
        below = (origin for key, origin in origins.items() if key[: len(key_path)] == key_path)
        above = (origins.get(key_path[:end]) for end in range(len(key_path), 0, -1))
        return origins.get(key_path) or next(below, None) or next(filter(None, above), None)

    def is_from_environment(self, key_path: SettingPath) -> bool:
        return self.origins.get(key_path, "").startswith("environment ")


def _merge(base: Tree, over: Tree) -> None:
    for key, value in over.items():
        below = base.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            _merge(cast("Tree", below), cast("Tree", value))
        else:
            base[key] = value
