"""The YAML file: its values with `${VAR:-default}` expanded, and the line and column of each."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from gateway.settings.merge import MergedValues, SettingsError
from gateway.settings.values import Tree, Where, dotted

_VARIABLE: Final = re.compile(r"\$(\$?)\{([^}]*)\}")


def read_file(path: Path, environ: Mapping[str, str], gathered: MergedValues, *, bearing: bool = False) -> None:
    """Raises `SettingsError` for what is no YAML; any lesser mistake is noted, or borne."""
    gathered.file = str(path)
    walk = _Walk(environ, gathered, bearing)
    try:
        node = yaml.SafeLoader(path.read_text("utf-8")).get_single_node()
    except OSError as exc:
        raise SettingsError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    except yaml.MarkedYAMLError as exc:
        raise SettingsError(f"{walk.place(exc.problem_mark)}: not valid YAML: {exc.problem}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{path}: not valid YAML: holds characters that are not text") from None
    if isinstance(node, yaml.MappingNode):
        # A section with nothing in it, or only comments, is a section left out.
        gathered.add({key: value for key, value in walk.mapping(node, ()).items() if value is not None})
        for namespace in gathered.absent:
            gathered.tree["backends"][namespace] = _bare(gathered.tree["backends"][namespace])
    elif node is not None:
        gathered.problems.append(f"{walk.place(node.start_mark)}: expected a mapping of settings")


def _bare(entry: Any) -> Any:
    """Kind and target of an entry, as they are written; the rest may rely on what is not set."""
    if not isinstance(entry, dict):
        return entry
    given = cast("Tree", entry)
    kept = {key: given[key] for key in ("module", "url", "command", "enabled") if key in given}
    if isinstance(url := kept.get("url"), str) and "://" not in url:
        kept["url"] = f"https://{url}"  # of an address that is a variable, nothing else is known
    return kept


class _Walk:
    """Over the nodes of one file, noting where each was written."""

    def __init__(self, environ: Mapping[str, str], gathered: MergedValues, bearing: bool) -> None:
        self._environ = environ
        self._absent = gathered.absent if bearing else None
        self._file = gathered.file
        self._problems = gathered.problems
        self._origins = gathered.origins

    def mapping(self, node: yaml.MappingNode, at: Where) -> Tree:
        values: Tree = {}
        for key, value in node.value:
            here = (*at, str(key.value))
            place = self.place(key.start_mark)
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                self._problems.append(f"{place}: {dotted(at)}: expected a plain key")
            elif key.value in values:
                self._problems.append(f"{place}: {dotted(here)}: given twice; first at {self._origins[here]}")
            else:
                self._origins[here] = place
                values[key.value] = self._value(value, here)
        return values

    def place(self, mark: yaml.Mark | None) -> str:
        return self._file if mark is None else f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    def _value(self, node: yaml.Node, at: Where) -> Any:
        if len(at) > 32:  # an alias to what it is part of would never end
            raise SettingsError(f"{self.place(node.start_mark)}: nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*at, position)) for position, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _item(self, node: yaml.Node, at: Where) -> Any:
        self._origins[at] = self.place(node.start_mark)
        return self._value(node, at)

    def _scalar(self, node: yaml.Node, at: Where) -> Any:
        place = self.place(node.start_mark)
        try:
            value = cast("Any", yaml.SafeLoader("").construct_object(node))  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError):
            self._problems.append(f"{place}: {dotted(at)}: not a value that YAML knows")
            return None
        return self._expand(value, place, at) if isinstance(value, str) else value

    def _expand(self, text: str, place: str, at: Where) -> str:
        def replacement(found: re.Match[str]) -> str:
            if found[1]:  # $${ is a plain ${
                return found[0][1:]
            name, has_default, default = found[2].partition(":-")
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                self._problems.append(f"{place}: {dotted(at)}: expected ${{NAME}} or ${{NAME:-default}}")
            elif name not in self._environ and not has_default:
                if self._absent is not None and at[0] == "backends" and len(at) > 2:
                    self._absent.setdefault(str(at[1]), []).append(name)
                    return found[0]
                self._problems.append(f"{place}: {dotted(at)}: {name} is not set; set it or write ${{{name}:-default}}")
            return self._environ.get(name) or default

        return _VARIABLE.sub(replacement, text)
