"""Names and aliases of product families and platforms."""

import re
from typing import Final

FAMILIES: Final = (
    "3d", "barcode", "cad", "cells", "diagram", "email", "finance", "font", "gis", "html", "imaging", "note", "ocr",
    "page", "pdf", "psd", "slides", "svg", "tasks", "tex", "words", "zip",
)  # fmt: skip
URL_PLATFORMS: Final = {
    **{name: name for name in ("python", "typescript", "javascript", "java", "dotnet", "cpp", "go", "ruby", "php")},
    **{name: name for name in ("kotlin", "swift", "rust")},
    "net": "dotnet",
    "nodejs": "javascript",
}
"""Platform by its name in a product URL."""

PLATFORM_FAMILY: Final = {"typescript": "node", "javascript": "node"}

_PLATFORM_ALIASES: Final = {
    "python": "python", "typescript": "typescript", "javascript": "javascript", "node.js": "javascript",
    "nodejs": "javascript", "node": "javascript", "java": "java", ".net": "dotnet", "net": "dotnet", "dotnet": "dotnet",
    "c#": "dotnet", "c++": "cpp", "cpp": "cpp", "go": "go", "golang": "go", "ruby": "ruby", "php": "php",
    "kotlin": "kotlin", "swift": "swift", "rust": "rust",
}  # fmt: skip
PLATFORM_TITLES: Final = {
    "python": "Python", "typescript": "TypeScript", "javascript": "JavaScript", "java": "Java", "dotnet": ".NET",
    "cpp": "C++", "go": "Go", "ruby": "Ruby", "php": "PHP", "kotlin": "Kotlin", "swift": "Swift", "rust": "Rust",
}  # fmt: skip
_UPPERCASE_FAMILIES: Final = frozenset({"3d", "cad", "gis", "html", "ocr", "pdf", "psd", "svg", "zip"})

_ALIAS_PATTERN: Final = "|".join(map(re.escape, sorted(_PLATFORM_ALIASES, key=len, reverse=True)))
PLATFORM_MENTION: Final = re.compile(rf"(?<![\w.])(?:{_ALIAS_PATTERN})(?![\w+#])")


def find_platform(text: str) -> str | None:
    """Return the platform with this name or alias."""
    return _PLATFORM_ALIASES.get(text.strip().lower())


def find_family(text: str) -> str | None:
    """Return the product family with this name."""
    text = text.strip().lower()
    return text if text in FAMILIES else None


def family_title(name: str) -> str:
    """Return the family as it appears in product names, such as `PDF` or `Cells`."""
    return name.upper() if name in _UPPERCASE_FAMILIES else name.capitalize()
