"""Real parsers for the languages of snippets and sources, each loaded when it is first asked for."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from gateway.errors import Fault, Kind

LANGUAGES: Final = {
    ".py": "python", ".pyi": "python", ".ts": "typescript", ".tsx": "typescript", ".js": "javascript",
    ".mjs": "javascript", ".java": "java", ".cs": "csharp", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".h": "cpp",
    ".hpp": "cpp", ".go": "go", ".rb": "ruby", ".php": "php", ".kt": "kotlin", ".swift": "swift", ".rs": "rust",
}  # fmt: skip
FENCES: Final = {
    "py": "python", "python3": "python", "ts": "typescript", "js": "javascript", "node": "javascript",
    "cs": "csharp", "c#": "csharp", "dotnet": "csharp", "c++": "cpp", "golang": "go", "rb": "ruby", "kt": "kotlin",
    "rs": "rust", "sh": "bash", "shell": "bash", "console": "bash",
}  # fmt: skip
"""Other words for a language after a fence."""

OF_PLATFORM: Final = {"dotnet": "csharp"}
"""Where a platform and its language have different names."""

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
_TYPES: Final = frozenset({
    "class_definition", "class_declaration", "interface_declaration", "struct_declaration", "enum_declaration", "class",
    "class_specifier", "struct_specifier", "struct_item", "enum_item", "trait_item", "type_spec", "record_declaration",
})  # fmt: skip
_FUNCTIONS: Final = frozenset({"function_definition", "function_declaration", "function_item", "method"})
_INSIDE: Final = frozenset({
    "module", "program", "source_file", "translation_unit", "compilation_unit", "namespace_declaration",
    "file_scoped_namespace_declaration", "declaration_list", "export_statement", "decorated_definition",
    "type_declaration", "namespace_definition",
})  # fmt: skip
"""Where declarations at the top of a file may lie."""


def spoken(word: str) -> str:
    """The language that a fence's word means."""
    word = word.strip().lower()
    return FENCES.get(word, word)


def parsable(language: str) -> bool:
    return language in _GRAMMARS


def syntax_error(language: str, code: str) -> int | None:
    """The line of the first syntax error, counted from 1; None when there is none."""
    text = f"<?php\n{code}" if language == "php" and "<?php" not in code else code
    shift = text.count("\n") - code.count("\n")
    tree = _parser(language).parse(text.encode())
    return None if not tree.root_node.has_error else max(1, _first_error(tree.root_node) - shift)


@dataclass(frozen=True, slots=True)
class Declaration:
    is_type: bool
    name: str
    line: int


def declared(language: str, code: str) -> list[Declaration]:
    """The public types and functions at the top of a source file."""
    found: list[Declaration] = []
    for node in _top(_parser(language).parse(code.encode()).root_node):
        name = node.child_by_field_name("name")
        text = name.text.decode("utf-8", "replace") if name is not None and name.text else ""
        if text and not text.startswith("_"):
            found.append(Declaration(node.type in _TYPES, text, node.start_point[0] + 1))
    return found


def _top(node: Any) -> Iterator[Any]:
    for child in node.named_children:
        if child.type in _TYPES or child.type in _FUNCTIONS:
            yield child
        elif child.type in _INSIDE:
            yield from _top(child)


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
    module, maker = _GRAMMARS[language]
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
    return sitter.Parser(sitter.Language(getattr(grammar, maker)()))
