"""The public surface of Python packages, read by griffe without importing anything."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

import griffe

from backends.launch.surface import prose
from backends.launch.surface.model import Block, Doc, Parameter, Symbol
from backends.launch.surface.source import one_line, wrap

logging.getLogger("griffe").setLevel(logging.CRITICAL)

_SKIPPED_FOLDERS: Final = frozenset({
    "test", "tests", "testing", "docs", "doc", "examples", "example", "samples", "demo", "demos", "benchmarks",
    "benchmark", "scripts", "tools", "build", "dist", "vendor", "_vendor", "third_party",
})  # fmt: skip
_TEST_FILES: Final = frozenset({"conftest.py", "setup.py", "noxfile.py", "tasks.py"})
_PREFIX: Final = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}
_VERSION_NAMES: Final = frozenset({"__version__", "__author__"})


def extract(repo: Path, paths: Sequence[str]) -> list[Symbol]:
    """Return the public symbols of the packages among these files, each at its shortest public name."""
    surface = _PythonSurface(repo)
    for folder, name in _find_packages(paths):
        try:
            module = griffe.load(
                name, search_paths=[repo / folder], allow_inspection=False, resolve_aliases=True, resolve_external=False
            )
        except (griffe.GriffeError, ImportError, SyntaxError, UnicodeError, ValueError, RecursionError, OSError):
            continue
        surface.add_module(module)
    return surface.symbols()


def _find_packages(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return (search folder, name) of each top-level package or module."""
    packages: dict[tuple[str, str], None] = {}
    folders = {str(PurePosixPath(path).parent) for path in paths if PurePosixPath(path).stem == "__init__"}
    for folder in sorted(folders, key=lambda each: (each.count("/"), each)):
        parent = str(PurePosixPath(folder).parent)
        name = PurePosixPath(folder).name
        is_top = parent not in folders and not any(
            folder.startswith(f"{other}/") for other in folders if other != folder
        )
        if (
            is_top
            and folder != "."
            and name.isidentifier()
            and _SKIPPED_FOLDERS.isdisjoint(PurePosixPath(folder).parts)
        ):
            packages[("" if parent == "." else parent, name)] = None
    for path in paths:
        pure = PurePosixPath(path)
        parent = str(pure.parent)
        is_root = parent in (".", "src", "lib") and pure.suffix == ".py" and parent not in folders
        if is_root and pure.name not in _TEST_FILES and pure.stem.isidentifier() and not pure.stem.startswith("test"):
            packages.setdefault(("" if parent == "." else parent, pure.stem), None)
    named = {name for _, name in packages}
    # With a package, loose modules at the root are scripts of the repository.
    has_package = any(f"{folder}/{name}".strip("/") in folders for folder, name in packages)
    return [
        (folder, name)
        for folder, name in packages
        if name in named and (not has_package or f"{folder}/{name}".strip("/") in folders)
    ]


class _PythonSurface:
    """Collects public objects. An object with several public names is kept under the shortest."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo.resolve()
        self._found: dict[str, tuple[str, Any]] = {}
        """Public path and object, by the canonical path of the object."""
        self._modules: list[Any] = []
        self._line_counts: dict[str, int] = {}

    def add_module(self, module: Any) -> None:
        self._modules.append(module)
        for name in _public_names(module):
            member = module.members.get(name)
            target = _resolve(member)
            if target is None or target.kind is griffe.Kind.MODULE:
                continue
            self._offer(f"{module.path}.{name}", target)
        for name, member in module.members.items():
            is_submodule = not member.is_alias and member.kind is griffe.Kind.MODULE
            if is_submodule and not name.startswith("_") and not _is_test(name):
                self.add_module(member)

    def _offer(self, path: str, target: Any) -> None:
        known = self._found.get(target.path)
        if known is None or (path.count("."), len(path)) < (known[0].count("."), len(known[0])):
            self._found[target.path] = (path, target)

    def symbols(self) -> list[Symbol]:
        found: list[Symbol] = []
        for module in self._modules:
            if _doc(module).blocks:
                found.append(self._symbol(module, module.path, "module", module.path, "", "", (), ""))
        for path, target in sorted(self._found.values(), key=lambda each: each[0]):
            module, _, name = path.rpartition(".")
            found.extend(self._describe(target, name, module))
        return [symbol for symbol in found if symbol.path]

    def _describe(self, target: Any, name: str, module: str, container: str = "") -> Iterator[Symbol]:
        if target.kind is griffe.Kind.CLASS:
            init = _resolve(target.members.get("__init__"))
            parameters = _parameters(init) if init is not None and init.kind is griffe.Kind.FUNCTION else ()
            if init is None and "dataclass" in target.labels:
                parameters = tuple(_field_parameters(target))
            bases = ", ".join(str(base) for base in target.bases)
            inside = ", ".join(_render(each) for each in parameters)
            signature = (
                f"class {name}({bases})"
                if bases and not parameters
                else f"class {name}({inside})"
                if parameters
                else f"class {name}"
            )
            yield self._symbol(target, name, "class", module, container, signature, parameters, "", init)
            qualified = f"{container}.{name}" if container else name
            for member_name, member in target.members.items():
                if member_name.startswith("_") or member.is_alias:
                    continue
                yield from self._describe(member, member_name, module, qualified)
        elif target.kind is griffe.Kind.FUNCTION:
            yield self._function(target, name, module, container)
        elif target.kind in (griffe.Kind.ATTRIBUTE, griffe.Kind.TYPE_ALIAS):
            kind = "property" if "property" in target.labels else "attribute" if container else "constant"
            annotation = str(target.annotation or "") if hasattr(target, "annotation") else ""
            value = str(target.value) if getattr(target, "value", None) is not None else ""
            shown = f"{name}: {annotation}" if annotation else name
            if value and len(value) <= 80 and kind != "property":
                shown += f" = {value}"
            yield self._symbol(target, name, kind, module, container, one_line(shown), (), annotation)

    def _function(self, target: Any, name: str, module: str, container: str) -> Symbol:
        parameters = _parameters(target)
        if container and "staticmethod" not in target.labels and parameters:
            parameters = parameters[1:]
        returns = str(target.returns or "")
        inside = ", ".join(_render(each) for each in _with_separators(target, parameters))
        prefix = "async def" if "async" in target.labels else "def"
        signature = f"{prefix} {name}({inside})" + (f" -> {returns}" if returns else "")
        kind = "method" if container else "function"
        if "property" in target.labels:
            kind, signature = "property", f"{name}: {returns}" if returns else name
        shown = tuple(each for each in parameters)
        return self._symbol(target, name, kind, module, container, signature, shown, returns)

    def _symbol(
        self,
        target: Any,
        name: str,
        kind: str,
        module: str,
        container: str,
        signature: str,
        parameters: tuple[Parameter, ...],
        returns: str,
        init: Any = None,
    ) -> Symbol:
        doc = _doc(target)
        if init is not None and (more := _doc(init)) != Doc():
            doc = Doc(
                (*doc.blocks, *(more.blocks if not doc.blocks else ())),
                {**more.parameters, **doc.parameters},
                doc.returns,
                doc.return_type,
                doc.raises or more.raises,
                doc.deprecated,
            )
        path, line = self._source(target)
        return Symbol(name, kind, module, path, line, wrap(signature), container, parameters, returns, doc)

    def _source(self, target: Any) -> tuple[str, int]:
        """Return the file and line of an object. The line of an object with a stub may be that of the stub."""
        path, line = self._path(target), target.lineno or 1
        for choice in (path, f"{path}i"):
            if line <= self._line_count(choice):
                return choice, line
        return path, 1

    def _line_count(self, path: str) -> int:
        if path not in self._line_counts:
            file = self._repo / path
            self._line_counts[path] = len(file.read_bytes().splitlines()) if path and file.is_file() else 0
        return self._line_counts[path]

    def _path(self, target: Any) -> str:
        try:
            file: Any = target.filepath
            first: Any = cast("list[Any]", file)[0] if isinstance(file, list) else file
            return Path(first).resolve().relative_to(self._repo).as_posix()
        except (ValueError, griffe.GriffeError, IndexError):
            return ""


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test") or name in ("conftest", "test", "tests")


def _public_names(module: Any) -> list[str]:
    """Return the names of `__all__`; without it, names defined here and names imported from the same package."""
    if module.exports is not None:
        names = [each if isinstance(each, str) else each.name for each in module.exports]
        return [name for name in names if not name.startswith("__") or name in _VERSION_NAMES]
    package = module.path.split(".")[0]
    is_package = bool(module.is_init_module)
    names: list[str] = []
    for name, member in module.members.items():
        if name.startswith("_"):
            continue
        if member.is_alias:
            inside = str(member.target_path).split(".")[0] == package
            if inside and is_package:
                names.append(name)
        elif member.kind is not griffe.Kind.ATTRIBUTE or _is_documented_attribute(name, member):
            names.append(name)
    return names


def _is_documented_attribute(name: str, member: Any) -> bool:
    return bool(member.docstring) or member.annotation is not None or name.isupper()


def _resolve(member: Any) -> Any | None:
    if member is None:
        return None
    try:
        return member.final_target if member.is_alias else member
    except (griffe.GriffeError, RecursionError):
        return None


def _parameters(function: Any) -> tuple[Parameter, ...]:
    found = [
        Parameter(_PREFIX.get(each.kind, "") + each.name, str(each.annotation or ""), _default(each))
        for each in function.parameters
    ]
    is_init = function.name == "__init__"
    return tuple(found[1:] if is_init and found else found)


def _default(parameter: Any) -> str:
    is_variadic = parameter.kind in _PREFIX
    return "" if parameter.default is None or is_variadic else one_line(str(parameter.default))


def _field_parameters(target: Any) -> Iterator[Parameter]:
    for name, member in target.members.items():
        is_field = not member.is_alias and member.kind is griffe.Kind.ATTRIBUTE and member.annotation is not None
        if is_field and "property" not in member.labels and not name.startswith("_"):
            yield Parameter(
                name, str(member.annotation), one_line(str(member.value)) if member.value is not None else ""
            )


def _with_separators(function: Any, parameters: tuple[Parameter, ...]) -> list[Parameter]:
    """Insert the markers `/` and `*` of positional-only and keyword-only parameters."""
    kinds = {_PREFIX.get(each.kind, "") + each.name: each.kind for each in function.parameters}
    shown: list[Parameter] = []
    previous: Any = None
    for each in parameters:
        kind = kinds.get(each.name)
        if previous is griffe.ParameterKind.positional_only and kind is not griffe.ParameterKind.positional_only:
            shown.append(Parameter("/"))
        is_first_keyword = kind is griffe.ParameterKind.keyword_only and previous not in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        )
        if is_first_keyword:
            shown.append(Parameter("*"))
        shown.append(each)
        previous = kind
    return shown


def _render(parameter: Parameter) -> str:
    text = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    if not parameter.default:
        return text
    return f"{text} = {parameter.default}" if parameter.type else f"{text}={parameter.default}"


# ---- docstrings ----

_SECTION: Final = griffe.DocstringSectionKind
_FIELD: Final = re.compile(r"^\s*:(?:param|parameter|type|return|returns|rtype|raises?|arg)\b", re.MULTILINE)
_NUMPY: Final = re.compile(
    r"^\s*(?:Parameters|Returns|Raises|Examples|Notes|Attributes|See Also)\s*\n\s*-{3,}", re.MULTILINE
)


def _doc(target: Any) -> Doc:
    docstring = target.docstring
    deprecated = _decorator_deprecation(target)
    if docstring is None:
        return Doc(deprecated=deprecated)
    text = str(docstring.value)
    style = "sphinx" if _FIELD.search(text) else "numpy" if _NUMPY.search(text) else "google"
    try:
        sections: Any = docstring.parse(style, warnings=False)
    except (griffe.GriffeError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        return Doc(tuple(_restructured(text)), deprecated=deprecated)
    blocks: list[Block] = []
    parameters: dict[str, Parameter] = {}
    raises: list[tuple[str, str]] = []
    returns = return_type = ""
    for section in sections:
        if section.kind is _SECTION.text:
            blocks.extend(_restructured(section.value))
        elif section.kind in (_SECTION.parameters, _SECTION.other_parameters, _SECTION.attributes):
            for each in section.value:
                default = str(each.value) if getattr(each, "value", None) else ""
                found = Parameter(each.name, str(each.annotation or ""), default, prose.inline(each.description))
                parameters[each.name.lstrip("*")] = found
        elif section.kind in (_SECTION.returns, _SECTION.yields):
            first = section.value[0] if section.value else None
            if first is not None:
                returns, return_type = prose.inline(first.description), str(first.annotation or "")
        elif section.kind is _SECTION.raises:
            raises.extend((str(each.annotation or ""), prose.inline(each.description)) for each in section.value)
        elif section.kind is _SECTION.examples:
            for kind, value in section.value:
                if kind is _SECTION.examples:
                    blocks.extend(_code(value))
                else:
                    blocks.extend(_restructured(value))
        elif section.kind is _SECTION.deprecated:
            deprecated = prose.inline(section.value.description)
        elif section.kind is _SECTION.admonition and section.value.kind in (
            "note",
            "warning",
            "tip",
            "important",
            "example",
            "examples",
        ):
            blocks.extend(_restructured(section.value.contents))
    found_note = re.search(r"^\s*\.\. deprecated::\s*(.*(?:\n\s{4,}\S.*)*)", text, re.MULTILINE)
    if found_note:
        deprecated = prose.inline(found_note[1])
    return Doc(tuple(blocks), parameters, returns, return_type, tuple(raises), deprecated)


def _decorator_deprecation(target: Any) -> str | None:
    for decorator in getattr(target, "decorators", ()):
        value = str(decorator.value)
        if re.match(r"(?:\w+\.)*deprecated\b", value):
            message = re.search(r"['\"](.+?)['\"]", value)
            return prose.inline(message[1]) if message else ""
    return None


def _restructured(text: str) -> Iterator[Block]:
    """Yield the blocks of reST or Markdown text: directives are removed, literal blocks and doctests become code."""
    lines: list[str] = []
    source = iter(text.splitlines())
    pending: list[str] = []
    skipping = -1
    for line in source:
        indent = len(line) - len(line.lstrip())
        if skipping >= 0:
            if not line.strip() or indent > skipping:
                continue
            skipping = -1
        directive = re.match(r"^(\s*)\.\. ([\w:-]+)::\s*(.*)$", line)
        if directive and directive[2] in ("code-block", "code", "sourcecode", "highlight"):
            lines += ["", f"```{directive[3] or 'python'}", *_indented(source, len(directive[1]), pending), "```", ""]
        elif directive and directive[2] in ("note", "warning", "tip", "important", "hint"):
            lines += ["", directive[3]]
        elif directive or re.match(r"^\s*\.\. ", line):
            skipping = indent
        elif line.lstrip().startswith(">>>"):
            lines += ["", "```python", line.strip(), *_until_blank(source), "```", ""]
        elif line.rstrip().endswith("::") and not line.lstrip().startswith(("#", "-")):
            lines += [line.rstrip()[:-1], "", "```python", *_indented(source, indent, pending), "```", ""]
        elif re.match(r"^\s*[=\-~^\"'*+]{3,}\s*$", line):
            continue
        else:
            lines.append(line)
        while pending:
            lines.append(pending.pop(0))
    for block in prose.blocks("\n".join(lines), "python"):
        if block.kind == "code" and block.language in ("python", "pycon", "default"):
            yield from _code(block.text)
        else:
            yield block


def _indented(source: Iterator[str], indent: int, pending: list[str]) -> Iterator[str]:
    """Take the lines that are indented deeper. The first other line goes to `pending`."""
    for line in source:
        if re.match(r"^\s+:[\w-]+:", line):
            continue
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            pending.append(line)
            return
        yield line


def _until_blank(source: Iterator[str]) -> Iterator[str]:
    for line in source:
        if not line.strip():
            return
        yield line.strip() if line.lstrip().startswith((">>>", "...")) else line


def _code(text: str) -> Iterator[Block]:
    """Yield an example as Python code. Prompts are removed, and the output of a doctest becomes comments."""
    if ">>>" not in text:
        if prose.is_showable(text):
            yield Block("code", prose.clean_code(text), "python")
        return
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        stripped = line.strip()
        if stripped.startswith((">>>", "...")):
            lines.append(re.sub(r"^(?:>>>|\.\.\.) ?", "", stripped))
        elif stripped.startswith("```"):
            continue
        else:
            lines.append(f"# {stripped}" if stripped else "")
    source = "\n".join(lines)
    if prose.is_showable(source):
        yield Block("code", prose.clean_code(source), "python")
