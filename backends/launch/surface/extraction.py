"""Selects the reader of the public surface for a language."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from backends.launch.surface import class_languages, cpp, go, javascript, ruby, rust
from backends.launch.surface.model import Symbol
from gateway.errors import Fault, Kind

_MAX_SYMBOLS: Final = 20_000
_MAX_NAME: Final = 200


def extract(language: str, repo: Path, paths: Sequence[str], product: str) -> list[Symbol]:
    """Return the public symbols of the sources, in a stable order."""
    if language == "python":
        found = _from_python(repo, paths)
    else:
        found = _from_files(language, {path: (repo / path).read_bytes() for path in paths}, product)
    shown = [symbol for symbol in found if symbol.name and len(symbol.qualified_name) <= _MAX_NAME]
    return shown[:_MAX_SYMBOLS]


def _from_python(repo: Path, paths: Sequence[str]) -> list[Symbol]:
    try:
        from backends.launch.surface import python
    except ImportError as exc:
        raise Fault(
            Kind.UNSUPPORTED,
            "The reader of Python packages is not installed.",
            code="TOOLCHAIN_MISSING",
            details={"tool": "griffelib"},
            suggested_fix="Install the `launch` extra.",
        ) from exc
    return python.extract(repo, paths)


def _from_files(language: str, files: Mapping[str, bytes], product: str) -> list[Symbol]:
    if language in ("javascript", "typescript"):
        return javascript.extract(files)
    if language == "go":
        return go.extract(files)
    if language == "rust":
        return rust.extract(files)
    if language == "cpp":
        return cpp.extract(files, product)
    if language == "ruby":
        return ruby.extract(files, product)
    return class_languages.extract(language, files, product)
