"""Finds names of the product that a code sample uses but that its public surface does not have."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gateway.contract import Json


def unknown_names(language: str, code: str, symbols: Sequence[Json]) -> list[str]:
    """Return the names that the sample takes from the product and that are not public. Empty without a surface."""
    reader = _READERS.get(language)
    if reader is None or not symbols:
        return []
    names = {symbol["name"] for symbol in symbols}
    modules = {symbol["module"] for symbol in symbols}
    parts = {part for module in modules for part in re.split(r"[./:\\]+", module)}
    return sorted({name for name in reader(code, modules) if name not in names and name not in parts})


def uses_product(language: str, code: str, symbols: Sequence[Json], package: str) -> bool:
    """Whether the sample imports the product or names one of its symbols."""
    reader = _READERS.get(language)
    if reader is not None and any(True for _ in reader(code, {symbol["module"] for symbol in symbols})):
        return True
    roots = {re.split(r"[./:\\]+", symbol["module"])[0] for symbol in symbols} | {
        package.lower().replace("-", "_"),
        package,
    }
    words = set(re.findall(r"[\w@/-]+", code))
    return bool(words & {root for root in roots if len(root) > 2})


def _python(code: str, modules: set[str]) -> Iterator[str]:
    roots = {module.split(".")[0] for module in modules}
    for module, names in re.findall(r"^\s*from\s+([\w.]+)\s+import\s+\(?([^()\n#]+)", code, re.MULTILINE):
        if module.split(".")[0] in roots:
            yield from (name.split(" as ")[0].strip() for name in names.split(",") if name.strip(" *\\"))
    for module, alias in re.findall(r"^\s*import\s+([\w.]+)(?:\s+as\s+(\w+))?\s*$", code, re.MULTILINE):
        if module.split(".")[0] in roots:
            used = alias or module
            yield from re.findall(rf"(?<![\w.]){re.escape(used)}\.([A-Za-z]\w*)", code)


def _javascript(code: str, modules: set[str]) -> Iterator[str]:
    patterns = (
        r"import\s+(?:type\s+)?(?:\w+\s*,\s*)?\{([^}]*)\}\s*from\s*['\"]([^'\"]+)['\"]",
        r"(?:const|let|var)\s+\{([^}]*)\}\s*=\s*require\(\s*['\"]([^'\"]+)['\"]",
    )
    for pattern in patterns:
        for names, source in re.findall(pattern, code):
            if source in modules:
                found = [
                    re.split(r"\s+as\s+|:", name.strip().removeprefix("type "))[0].strip() for name in names.split(",")
                ]
                yield from (name for name in found if name and name != "default")


def _go(code: str, modules: set[str]) -> Iterator[str]:
    for alias, path in re.findall(r"^\s*(?:import\s+)?(\w+)?\s*\"([^\"]+)\"\s*$", code, re.MULTILINE):
        if path in modules and alias != "_":
            parts = [part for part in path.split("/") if not re.fullmatch(r"v\d+", part)]
            name = alias if alias and alias != "import" else re.sub(r"^go-|-go$|\.v\d+$", "", parts[-1])
            yield from re.findall(rf"(?<![\w.\"]){re.escape(name)}\.([A-Z]\w*)", code)


def _rust(code: str, modules: set[str]) -> Iterator[str]:
    roots = {module.split("::")[0] for module in modules}
    for path in re.findall(r"^\s*(?:pub\s+)?use\s+([^;]+);", code, re.MULTILINE):
        if path.split("::")[0].strip() in roots:
            tail = path.rpartition("::")[2] if "{" not in path else path[path.find("{") :]
            for name in re.split(r"[{},]", tail):
                plain = re.split(r"\s+as\s+", name.strip())[0].split("::")[-1]
                if plain and plain not in ("self", "*", "prelude", "_"):
                    yield plain


def _java(code: str, modules: set[str]) -> Iterator[str]:
    for path in re.findall(r"^\s*import\s+(?:static\s+)?([\w.]+)\s*;?\s*$", code, re.MULTILINE):
        module = next((each for each in sorted(modules, key=len, reverse=True) if path.startswith(f"{each}.")), None)
        if module is not None:
            yield path.removeprefix(f"{module}.").split(".")[0]


_READERS: Final[Mapping[str, Callable[[str, set[str]], Iterator[str]]]] = {
    "python": _python,
    "javascript": _javascript,
    "typescript": _javascript,
    "go": _go,
    "rust": _rust,
    "java": _java,
    "kotlin": _java,
}
