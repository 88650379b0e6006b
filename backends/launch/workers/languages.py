"""Tree-sitter parsers for the languages of snippets and sources, each loaded on first use."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from gateway.errors import Fault, Kind

LANGUAGE_BY_EXTENSION: Final = {
    ".py": "python", ".pyi": "python", ".ts": "typescript", ".tsx": "typescript", ".js": "javascript",
    ".mjs": "javascript", ".java": "java", ".cs": "csharp", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".h": "cpp",
    ".hpp": "cpp", ".go": "go", ".rb": "ruby", ".php": "php", ".kt": "kotlin", ".swift": "swift", ".rs": "rust",
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
_TYPES: Final = frozenset({
    "class_definition", "class_declaration", "interface_declaration", "struct_declaration", "enum_declaration", "class",
    "class_specifier", "struct_specifier", "struct_item", "enum_item", "trait_item", "type_spec", "record_declaration",
})  # fmt: skip
_FUNCTIONS: Final = frozenset({"function_definition", "function_declaration", "function_item", "method"})
_CONTAINERS: Final = frozenset({
    "module", "program", "source_file", "translation_unit", "compilation_unit", "namespace_declaration",
    "file_scoped_namespace_declaration", "declaration_list", "export_statement", "decorated_definition",
    "type_declaration", "namespace_definition",
})  # fmt: skip
"""Nodes that may contain top-level declarations."""


def normalize_language(tag: str) -> str:
    """Return the language for the language tag of a code fence."""
    tag = tag.strip().lower()
    return FENCE_ALIASES.get(tag, tag)


def can_parse(language: str) -> bool:
    return language in _GRAMMARS


def syntax_error(language: str, code: str) -> int | None:
    """Return the line of the first syntax error, counted from 1, or None."""
    text = f"<?php\n{code}" if language == "php" and "<?php" not in code else code
    shift = text.count("\n") - code.count("\n")
    tree = _parser(language).parse(text.encode())
    return None if not tree.root_node.has_error else max(1, _first_error(tree.root_node) - shift)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A public type or function of a source file."""

    is_type: bool
    name: str
    line: int


def public_declarations(language: str, code: str) -> list[Declaration]:
    """Return the public top-level types and functions of a source file."""
    found: list[Declaration] = []
    for node in _top_level_nodes(_parser(language).parse(code.encode()).root_node):
        name = node.child_by_field_name("name")
        text = name.text.decode("utf-8", "replace") if name is not None and name.text else ""
        if text and not text.startswith("_"):
            found.append(Declaration(node.type in _TYPES, text, node.start_point[0] + 1))
    return found


def _top_level_nodes(node: Any) -> Iterator[Any]:
    for child in node.named_children:
        if child.type in _TYPES or child.type in _FUNCTIONS:
            yield child
        elif child.type in _CONTAINERS:
            yield from _top_level_nodes(child)


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
