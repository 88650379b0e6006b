"""Tree-sitter parsers for the languages of snippets and sources, each loaded on first use."""

import importlib
import re
from functools import cache
from typing import Any, Final

from gateway.errors import Fault, Kind

LANGUAGE_BY_EXTENSION: Final = {
    ".py": "python", ".pyi": "python", ".ts": "typescript", ".tsx": "typescript", ".mts": "typescript",
    ".cts": "typescript", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".java": "java",
    ".cs": "csharp", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".h": "cpp", ".hpp": "cpp", ".hh": "cpp",
    ".hxx": "cpp", ".go": "go", ".rb": "ruby", ".php": "php", ".kt": "kotlin", ".swift": "swift", ".rs": "rust",
}  # fmt: skip
FENCE_ALIASES: Final = {
    "py": "python", "python3": "python", "ts": "typescript", "js": "javascript", "node": "javascript",
    "cs": "csharp", "c#": "csharp", "dotnet": "csharp", "c++": "cpp", "golang": "go", "rb": "ruby", "kt": "kotlin",
    "rs": "rust", "sh": "bash", "shell": "bash", "console": "bash",
}  # fmt: skip
"""Aliases of languages in code fences."""

LANGUAGE_BY_PLATFORM: Final = {"dotnet": "csharp"}
"""Languages of the platforms whose name differs from the language."""

_GRAMMARS: Final = {
    "python": ("tree_sitter_python", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "javascript": ("tree_sitter_javascript", "language"),
    "java": ("tree_sitter_java", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "kotlin": ("tree_sitter_kotlin", "language"),
    "swift": ("tree_sitter_swift", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "bash": ("tree_sitter_bash", "language"),
}


def normalize_language(tag: str) -> str:
    """Return the language for the language tag of a code fence."""
    tag = tag.strip().lower()
    return FENCE_ALIASES.get(tag, tag)


def can_parse(language: str) -> bool:
    return language in _GRAMMARS


def syntax_error(language: str, code: str) -> int | None:
    """Return the line of the first syntax error, counted from 1, or None."""
    first: int | None = None
    for text in _readings(language, code):
        shift = text.count("\n") - code.count("\n") if language == "php" else 0
        root = _parser(language).parse(text.encode()).root_node
        if not root.has_error:
            return None
        first = first if first is not None else max(1, _first_error(root) - shift)
    return first


def _readings(language: str, code: str) -> list[str]:
    """Return the ways to read a sample: as a file, and as a fragment where the language's files need a frame."""
    if language == "php" and "<?php" not in code:
        return [f"<?php\n{code}"]
    if language == "go" and not re.search(r"^package\s", code, re.MULTILINE):
        imports = "\n".join(re.findall(r"^import\s+(?:\([^)]*\)|[^\n]+)", code, re.MULTILINE))
        rest = re.sub(r"^import\s+(?:\([^)]*\)|[^\n]+)", "", code, flags=re.MULTILINE)
        return [f"package p\n{code}", f"package p\n{imports}\nfunc f() {{\n{rest}\n}}\n"]
    if language in ("java", "csharp", "kotlin"):
        return [code, f"class A {{\n{code}\n}}\n", f"class A {{ void f() {{\n{code}\n}} }}\n"]
    return [code]


def parse(language: str, data: bytes) -> Any:
    """Return the root node of the syntax tree."""
    return _parser(language).parse(data).root_node


def _first_error(node: Any) -> int:
    while True:
        if node.type == "ERROR" or node.is_missing:
            return node.start_point[0] + 1
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None:
            return node.start_point[0] + 1
        node = inner


@cache
def _parser(language: str) -> Any:
    module, factory = _GRAMMARS[language]
    try:
        sitter: Any = importlib.import_module("tree_sitter")
        grammar: Any = importlib.import_module(module)
    except ImportError as exc:
        raise Fault(
            Kind.UNSUPPORTED,
            f"The parser for {language} is not installed.",
            code="TOOLCHAIN_MISSING",
            details={"tool": module},
            suggested_fix="Install the `launch` extra.",
        ) from exc
    return sitter.Parser(sitter.Language(getattr(grammar, factory)()))
