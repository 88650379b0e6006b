"""The words of the product families and platforms, and what other words stand for them."""

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
"""What stands in a product's URL, and the platform it means."""

PLATFORM_FAMILY: Final = {"typescript": "node", "javascript": "node"}

_SPOKEN: Final = {
    "python": "python", "typescript": "typescript", "javascript": "javascript", "node.js": "javascript",
    "nodejs": "javascript", "node": "javascript", "java": "java", ".net": "dotnet", "net": "dotnet", "dotnet": "dotnet",
    "c#": "dotnet", "c++": "cpp", "cpp": "cpp", "go": "go", "golang": "go", "ruby": "ruby", "php": "php",
    "kotlin": "kotlin", "swift": "swift", "rust": "rust",
}  # fmt: skip
NAMES: Final = {
    "python": "Python", "typescript": "TypeScript", "javascript": "JavaScript", "java": "Java", "dotnet": ".NET",
    "cpp": "C++", "go": "Go", "ruby": "Ruby", "php": "PHP", "kotlin": "Kotlin", "swift": "Swift", "rust": "Rust",
}  # fmt: skip
_UPPER: Final = frozenset({"3d", "cad", "gis", "html", "ocr", "pdf", "psd", "svg", "zip"})

_WORDS: Final = "|".join(map(re.escape, sorted(_SPOKEN, key=len, reverse=True)))
MENTION: Final = re.compile(rf"(?<![\w.])(?:{_WORDS})(?![\w+#])")


def platform(word: str) -> str | None:
    return _SPOKEN.get(word.strip().lower())


def family(word: str) -> str | None:
    word = word.strip().lower()
    return word if word in FAMILIES else None


def shown_family(name: str) -> str:
    return name.upper() if name in _UPPER else name.capitalize()
