"""Reads the YAML file: expands `${VAR:-default}` and records the line and column of each value."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from gateway.settings.merge import MergedValues, SettingsError
from gateway.settings.values import SettingPath, Tree, dotted_path

_VARIABLE: Final = re.compile(r"\$(\$?)\{([^}]*)\}")


def read_file(
    path: Path, environ: Mapping[str, str], merged: MergedValues, *, allow_missing_variables: bool = False
) -> None:
    """Merge the values of a file. Raises `SettingsError` if it is not YAML; other mistakes are added to `merged`.

    With `allow_missing_variables`, an unset variable of a backend is recorded in `merged` instead of reported.
    """
    merged.file = str(path)
    reader = _NodeReader(environ, merged, allow_missing_variables)
    try:
        node = yaml.SafeLoader(path.read_text("utf-8")).get_single_node()
    except OSError as exc:
        raise SettingsError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    except yaml.MarkedYAMLError as exc:
        raise SettingsError(f"{reader.position(exc.problem_mark)}: not valid YAML: {exc.problem}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{path}: not valid YAML: contains control characters") from None
    if isinstance(node, yaml.MappingNode):
        # An empty section, or one with comments only, counts as omitted.
        merged.add({key: value for key, value in reader.mapping(node, ()).items() if value is not None})
        for namespace in merged.missing_variables:
            merged.tree["backends"][namespace] = _kind_and_target(merged.tree["backends"][namespace])
    elif node is not None:
        merged.problems.append(f"{reader.position(node.start_mark)}: expected a mapping of settings")


def _kind_and_target(entry: Any) -> Any:
    """Reduce an entry to its kind and target, because its other values may depend on unset variables."""
    if not isinstance(entry, dict):
        return entry
    values = cast("Tree", entry)
    entry_keys = {key: values[key] for key in ("module", "url", "command", "enabled") if key in values}
    if isinstance(url := entry_keys.get("url"), str) and "://" not in url:
        entry_keys["url"] = f"https://{url}"  # the whole URL is an unset variable
    return entry_keys


class _NodeReader:
    """Converts the YAML nodes of one file to values and records their positions."""

    def __init__(self, environ: Mapping[str, str], merged: MergedValues, allow_missing_variables: bool) -> None:
        self._environ = environ
        self._missing_variables = merged.missing_variables if allow_missing_variables else None
        self._file = merged.file
        self._problems = merged.problems
        self._origins = merged.origins

    def mapping(self, node: yaml.MappingNode, key_path: SettingPath) -> Tree:
        values: Tree = {}
        for key, value in node.value:
            child_path = (*key_path, str(key.value))
            position = self.position(key.start_mark)
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                self._problems.append(f"{position}: {dotted_path(key_path)}: expected a plain key")
            elif key.value in values:
                self._problems.append(
                    f"{position}: {dotted_path(child_path)}: duplicate key; first at {self._origins[child_path]}"
                )
            else:
                self._origins[child_path] = position
                values[key.value] = self._value(value, child_path)
        return values

    def position(self, mark: yaml.Mark | None) -> str:
        return self._file if mark is None else f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    def _value(self, node: yaml.Node, key_path: SettingPath) -> Any:
        if len(key_path) > 32:  # an alias to its own parent is infinitely deep
            raise SettingsError(f"{self.position(node.start_mark)}: nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, key_path)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*key_path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, key_path)

    def _item(self, node: yaml.Node, key_path: SettingPath) -> Any:
        self._origins[key_path] = self.position(node.start_mark)
        return self._value(node, key_path)

    def _scalar(self, node: yaml.Node, key_path: SettingPath) -> Any:
        position = self.position(node.start_mark)
        try:
            value = cast("Any", yaml.SafeLoader("").construct_object(node))  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError):
            self._problems.append(f"{position}: {dotted_path(key_path)}: not a valid YAML value")
            return None
        return self._expand(value, position, key_path) if isinstance(value, str) else value

    def _expand(self, text: str, position: str, key_path: SettingPath) -> str:
        def replacement(found: re.Match[str]) -> str:
            if found[1]:  # $${ stands for a literal ${
                return found[0][1:]
            name, has_default, default = found[2].partition(":-")
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                self._problems.append(f"{position}: {dotted_path(key_path)}: expected ${{NAME}} or ${{NAME:-default}}")
            elif name not in self._environ and not has_default:
                if self._missing_variables is not None and key_path[0] == "backends" and len(key_path) > 2:
                    self._missing_variables.setdefault(str(key_path[1]), []).append(name)
                    return found[0]
                self._problems.append(
                    f"{position}: {dotted_path(key_path)}: {name} is not set; set it or write ${{{name}:-default}}"
                )
            return self._environ.get(name) or default

        return _VARIABLE.sub(replacement, text)
