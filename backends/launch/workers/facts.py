"""W2: extracts claims about the product from its repository, each with a citation of the source lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from backends.launch.serialization import digest
from backends.launch.workers import languages, markdown
from backends.launch.workers.context import WorkerContext
from gateway.contract import Json

FORMATS: Final = frozenset({
    "3DS", "3MF", "AMF", "BMP", "CSV", "DAE", "DOC", "DOCX", "DRC", "DWG", "DXF", "EML", "EPUB", "FBX", "GIF", "GLB",
    "GLTF", "HTML", "ICO", "JPEG", "JPG", "JSON", "MHTML", "MSG", "OBJ", "ODP", "ODS", "ODT", "PDF", "PLY", "PNG",
    "PPT", "PPTX", "PSD", "RTF", "RVM", "STL", "SVG", "TGA", "TIFF", "TSV", "U3D", "USD", "USDZ", "VRML", "WEBP",
    "XLS", "XLSX", "XML", "XPS", "YAML", "ZIP",
})  # fmt: skip
"""Names of file formats that claims may mention."""

_HEADINGS: Final = (
    (re.compile(r"limitation|known issue|not supported|unsupported", re.IGNORECASE), "limitation", "limitations"),
    (re.compile(r"format", re.IGNORECASE), "format", "key_features"),
    (re.compile(r"feature|capabilit|highlight|what it does|why ", re.IGNORECASE), "feature", "key_features"),
    (re.compile(r"require|compatib|platform|prerequisite", re.IGNORECASE), "requirement", "compatibility_notes"),
    (re.compile(r"usage|quick ?start|getting started|how to|workflow", re.IGNORECASE), "workflow", "workflow_claims"),
)
_INSTALL: Final = re.compile(r"install|setup|getting started|quick ?start", re.IGNORECASE)
_COMMAND: Final = re.compile(
    r"^\$?\s*((?:python3? -m )?pip3? install|npm (?:install|i)|yarn add|dotnet add|go get|cargo add|gem install"
    r"|composer require|nuget install|mvn|brew install)\b.*$"
)
_PACKAGE: Final = (
    (re.compile(r'^\s*"?version"?\s*[=:]\s*["\']([0-9][^"\']*)["\']'), "version"),
    (re.compile(r'^\s*"?license"?\s*[=:]\s*["\']([^"\']+)["\']'), "license"),
    (re.compile(r'^\s*(?:requires-python|python_requires)\s*=\s*["\']([^"\']+)["\']'), "python"),
)
_MAX_CLAIM: Final = 300
_MAX_API: Final = 200
_INFERRED: Final = re.compile(r"\b(probably|might|may be|should be able|seems?|presumably)\b", re.IGNORECASE)


@dataclass(slots=True)
class _ClaimCollector:
    """Collects claims. A claim found in two places is stored once with two citations."""

    product: str
    claims: dict[str, Json] = field(default_factory=dict[str, Json])
    groups: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, text: str, kind: str, group: str | None, path: str, start: int, end: int) -> str | None:
        text = markdown.to_plain_text(text)
        if not 3 <= len(text) <= _MAX_CLAIM:
            return None
        identity = claim_id(text, kind, self.product)
        status = "inference" if _INFERRED.search(text) else "fact"
        new: Json = {
            "claim_id": identity,
            "claim_text": text,
            "claim_kind": kind,
            "truth_status": status,
            "citations": [],
        }
        claim = self.claims.setdefault(identity, new)
        cited = {"path": path, "start_line": start, "end_line": end}
        if cited not in claim["citations"]:
            claim["citations"].append(cited)
        if group is not None and identity not in self.groups.setdefault(group, []):
            self.groups[group].append(identity)
        return identity


def claim_id(text: str, kind: str, product: str) -> str:
    """Return an id that does not depend on whitespace or capitalization."""
    normal = " ".join(text.split()).lower().replace(product.lower(), "{product}")
    return digest(f"{normal}|{kind}".encode())


def run(context: WorkerContext) -> None:
    inventory = context.read("repo_inventory.json")
    collector = _ClaimCollector(context.config["product_name"])
    package: Json = {}
    tagline: tuple[str, str | None] = ("", None)
    for name in inventory["doc_entrypoints"]:
        text = _read_text(context, name)
        if not tagline[1]:
            tagline = _collect_positioning(collector, name, text)
        _collect_statements(collector, name, text)
        _collect_installation(collector, name, text)
    for name in inventory["package_files"]:
        package |= _read_package(collector, name, _read_text(context, name))
    api = _collect_api(context, collector, inventory)
    claims = list(collector.claims.values())
    if not context.config["allow_inference"]:
        claims = [claim for claim in claims if claim["truth_status"] == "fact"]
    context.write("product_facts.json", _build_facts(context, inventory, collector, claims, package, api, tagline))
    context.write("evidence_map.json", {"schema_version": "1.0", **_origin(inventory), "claims": claims})


def _origin(inventory: Json) -> Json:
    return {"repo_url": inventory["repo_url"], "repo_sha": inventory["repo_sha"]}


def _build_facts(
    context: WorkerContext,
    inventory: Json,
    collector: _ClaimCollector,
    claims: list[Json],
    package: Json,
    api: Json,
    tagline: tuple[str, str | None],
) -> Json:
    kept_ids = {claim["claim_id"] for claim in claims}
    names = (
        "key_features",
        "install_steps",
        "quickstart_steps",
        "workflow_claims",
        "limitations",
        "compatibility_notes",
    )
    groups = {name: [claim for claim in collector.groups.get(name, []) if claim in kept_ids] for name in names}
    config = context.config
    return {
        "schema_version": "1.0",
        "product_name": config["product_name"],
        "product_slug": config["product_slug"],
        **_origin(inventory),
        "positioning": {"tagline": tagline[0], "claim_id": tagline[1] if tagline[1] in kept_ids else None},
        "supported_platforms": [config["target_platform"]],
        "claims": [{key: value for key, value in claim.items() if key != "citations"} for claim in claims],
        "claim_groups": groups,
        "supported_formats": _formats(claims),
        "workflows": [_workflow(claim) for claim in claims if claim["claim_kind"] == "workflow"],
        "api_surface_summary": api,
        "example_inventory": inventory["example_paths"],
        **package,
    }


def _formats(claims: list[Json]) -> list[Json]:
    """Return the formats named by a claim that is not a limitation."""
    found: dict[str, str] = {}
    for claim in claims:
        if claim["claim_kind"] != "limitation":
            for format_name in re.findall(r"\b[A-Z0-9]{2,5}\b", claim["claim_text"]):
                if format_name in FORMATS:
                    found.setdefault(format_name, claim["claim_id"])
    return [{"format": format_name, "claim_id": found[format_name]} for format_name in sorted(found)]


def _workflow(claim: Json) -> Json:
    return {"name": claim["claim_text"][:80], "claim_id": claim["claim_id"], "snippet_tags": ["quickstart"]}


def _collect_positioning(collector: _ClaimCollector, name: str, text: str) -> tuple[str, str | None]:
    """Add the first sentence of the first paragraph as the positioning claim. Returns its text and id."""
    paragraph: list[markdown.Line] = []
    for line in markdown.lines(text):
        prose = not line.is_code and line.text.strip() and line.text.lstrip()[0].isalnum()
        if prose:
            paragraph.append(line)
        elif paragraph:
            break
    if not paragraph:
        return "", None
    sentence = re.split(r"(?<=[.!?])\s", " ".join(line.text for line in paragraph))[0]
    identity = collector.add(sentence, "positioning", None, name, paragraph[0].number, paragraph[-1].number)
    return (markdown.to_plain_text(sentence), identity) if identity else ("", None)


def _collect_statements(collector: _ClaimCollector, name: str, text: str) -> None:
    for line in markdown.lines(text):
        bullet = None if line.is_code else markdown.BULLET.match(line.text)
        if bullet is None or markdown.LINK.fullmatch(bullet[1]):
            continue
        for pattern, kind, group in _HEADINGS:
            if pattern.search(line.heading):
                collector.add(bullet[1], kind, group, name, line.number, line.number)
                break


def _collect_installation(collector: _ClaimCollector, name: str, text: str) -> None:
    for fence in markdown.fences(text):
        if not _INSTALL.search(fence.heading):
            continue
        for offset, line in enumerate(fence.code.splitlines(), 1):
            if _COMMAND.match(line.strip()):
                command = line.strip().removeprefix("$").strip()
                number = fence.start + offset
                collector.add(f"Install it with `{command}`.", "install", "install_steps", name, number, number)


def _read_package(collector: _ClaimCollector, name: str, text: str) -> Json:
    package: Json = {}
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, key in _PACKAGE:
            if (found := pattern.match(line)) and key not in package:
                package[key] = found[1][:100]
                _add_package_claim(collector, key, package[key], name, number)
    return {key: value for key, value in package.items() if key != "python"}


def _add_package_claim(collector: _ClaimCollector, key: str, value: str, name: str, number: int) -> None:
    if key == "license":
        collector.add(f"Its licence is {value}.", "license", "compatibility_notes", name, number, number)
    elif key == "python":
        collector.add(f"It needs Python {value}.", "requirement", "compatibility_notes", name, number, number)


def _collect_api(context: WorkerContext, collector: _ClaimCollector, inventory: Json) -> Json:
    """Collect the public top-level names of the sources in the platform's language."""
    platform = context.config["target_platform"]
    language: str = languages.LANGUAGE_BY_PLATFORM.get(platform) or platform
    types: list[str] = []
    functions: list[str] = []
    modules: list[str] = []
    for path in _sources(inventory, language, context.config.get("repo_hints", {}).get("preferred_source_roots", [])):
        modules.append(path)
        for found in languages.public_declarations(language, _read_text(context, path)):
            names, noun = (types, "type") if found.is_type else (functions, "function")
            if found.name not in names and len(names) < _MAX_API:
                names.append(found.name)
                collector.add(f"`{found.name}` is a public {noun}.", "api", None, path, found.line, found.line)
    return {"classes": sorted(types), "functions": sorted(functions), "modules": modules}


def _sources(inventory: Json, language: str, roots: list[str]) -> Iterator[str]:
    """Yield the source files without tests and examples, below the preferred roots if there are any."""
    examples = set(inventory["example_paths"])
    for file in inventory["paths"]:
        parts = PurePosixPath(file["path"]).parts
        preferred = not roots or any(PurePosixPath(file["path"]).is_relative_to(root) for root in roots)
        tests = any(part.lower() in ("test", "tests", "spec") or part.startswith("test_") for part in parts)
        is_source = file.get("language") == language and file["path"] not in examples and not tests
        if is_source and preferred and len(parts) > 1:
            yield file["path"]


def _read_text(context: WorkerContext, path: str) -> str:
    return context.repo.joinpath(path).read_bytes().decode("utf-8", "replace")
