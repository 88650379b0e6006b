"""Collects the public surface of the product and the claims of its documentation."""

from pathlib import PurePosixPath
from typing import Final

from backends.launch.surface.extraction import extract
from backends.launch.workers import languages, reference_text
from backends.launch.workers.claims import ClaimCollector, Origin
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json

_MANIFESTS: Final = ("package.json", "go.mod", "Cargo.toml")
_SHARED: Final = {"javascript": ("javascript", "typescript"), "typescript": ("typescript", "javascript")}
"""Languages whose sources belong to the same packages."""


def collect(context: WorkerContext, inventory: Json, collector: ClaimCollector) -> Json:
    """Return the surface: its language and symbols. Adds a claim for every statement of their documentation."""
    platform = context.config["target_platform"]
    language: str = languages.LANGUAGE_BY_PLATFORM.get(platform) or platform
    paths = _sources(inventory, language, context.config.get("repo_hints", {}).get("preferred_source_roots", []))
    found = extract(language, context.repo, paths, context.config["product_name"])
    symbols = [_parsable(symbol.as_json()) for symbol in found]
    for symbol in symbols:
        origin = Origin(symbol["path"], symbol["line"], symbol["line"])
        if text := reference_text.summary(symbol):
            collector.add(text, "api", origin)
        for part in reference_text.parts(symbol):
            if part.kind in ("claim", "item", "row"):
                collector.add(part.text, "api", origin)
    return {"schema_version": "1.0", "language": language, "symbols": symbols}


def summary(surface: Json) -> Json:
    """Return the `api_surface_summary` of the product facts."""
    types = [each for each in surface["symbols"] if not each["container"] and each["kind"] in _TYPES]
    functions = [each for each in surface["symbols"] if not each["container"] and each["kind"] == "function"]
    return {
        "classes": sorted({each["name"] for each in types}),
        "functions": sorted({each["name"] for each in functions}),
        "modules": sorted({each["module"] for each in surface["symbols"]}),
    }


_TYPES: Final = frozenset({
    "class", "interface", "struct", "enum", "trait", "protocol", "object", "record", "annotation", "type", "namespace",
})  # fmt: skip


def _sources(inventory: Json, language: str, roots: list[str]) -> list[str]:
    """Return the source files without examples, below the preferred roots if there are any, and the manifests."""
    wanted = _SHARED.get(language, (language,))
    examples = set(inventory["example_paths"])
    found: list[str] = []
    for file in inventory["paths"]:
        path = PurePosixPath(file["path"])
        preferred = not roots or any(path.is_relative_to(root) for root in roots)
        is_source = file.get("language") in wanted and file["path"] not in examples and preferred
        if is_source or path.name in _MANIFESTS:
            found.append(file["path"])
    return found


def _parsable(symbol: Json) -> Json:
    """Drop code of the documentation that is not valid in its language."""
    kept: list[Json] = []
    for block in symbol["blocks"]:
        if block["kind"] != "code":
            kept.append(block)
            continue
        language = languages.normalize_language(block["language"])
        if not languages.can_parse(language) or languages.syntax_error(language, block["text"]) is None:
            kept.append({**block, "language": language})
    return {**symbol, "blocks": kept}
