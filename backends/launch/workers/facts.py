"""W2: extracts facts about the product from its repository, each with a citation of the source lines."""

import re
from pathlib import PurePosixPath
from typing import Final

from backends.launch.surface import prose
from backends.launch.workers import api_facts, document, package_metadata, product_name, readme_facts
from backends.launch.workers.claims import ClaimCollector, Origin, claim_id
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.package_metadata import Metadata
from backends.launch.workers.readme_facts import ReadmeFacts
from gateway.contract import Json

__all__ = ["FORMATS", "claim_id", "run"]

FORMATS: Final = frozenset({
    "3DS", "3MF", "AMF", "BMP", "CSV", "DAE", "DOC", "DOCX", "DRC", "DWG", "DXF", "EML", "EPUB", "FBX", "GIF", "GLB",
    "GLTF", "HTML", "ICO", "JPEG", "JPG", "JSON", "MHTML", "MSG", "OBJ", "ODP", "ODS", "ODT", "PDF", "PLY", "PNG",
    "PPT", "PPTX", "PSD", "RTF", "RVM", "STL", "SVG", "TGA", "TIFF", "TSV", "U3D", "USD", "USDZ", "VRML", "WEBP",
    "XLS", "XLSX", "XML", "XPS", "YAML", "ZIP",
})  # fmt: skip
"""Names of file formats that claims may mention."""

_GROUPS: Final = (
    "key_features",
    "install_steps",
    "quickstart_steps",
    "workflow_claims",
    "limitations",
    "compatibility_notes",
)
_CHANGELOG: Final = re.compile(
    r"^(?:changelog|changes|history|news|releases?)(?:\.(?:md|rst|txt|markdown))?$", re.IGNORECASE
)
_LICENCES: Final = (
    ("MIT License", "MIT"), ("Apache License", "Apache-2.0"), ("Mozilla Public License", "MPL-2.0"),
    ("BSD 3-Clause", "BSD-3-Clause"), ("BSD 2-Clause", "BSD-2-Clause"), ("ISC License", "ISC"),
    ("GNU LESSER GENERAL PUBLIC LICENSE", "LGPL"), ("GNU GENERAL PUBLIC LICENSE", "GPL"),
)  # fmt: skip


def run(context: WorkerContext) -> None:
    inventory = context.read("repo_inventory.json")
    packages = [package_metadata.read(name, _read_text(context, name)) for name in inventory["package_files"]]
    documents = [(name, _read_document(context, name)) for name in inventory["doc_entrypoints"]]
    readme = documents[0][1] if documents else ""
    collector = ClaimCollector(product_name.own_name(context.config, readme, packages))
    facts = readme_facts.collect(collector, documents, packages, context.config["target_platform"])
    facts.changes = _changes(context, inventory, collector)
    package = _collect_package(context, inventory, collector, packages)
    surface = api_facts.collect(context, inventory, collector)
    claims = list(collector.claims.values())
    if not context.config["allow_inference"]:
        claims = [claim for claim in claims if claim["truth_status"] == "fact"]
    own = product_name.is_own(context.config, readme, packages)
    context.write("api_surface.json", surface)
    context.write(
        "product_facts.json",
        {
            **_build_facts(context, inventory, collector, claims, facts),
            **package,
            "product_name_found": own,
            "api_surface_summary": api_facts.summary(surface),
        },
    )
    context.write("evidence_map.json", {"schema_version": "1.0", **_origin(inventory), "claims": claims})


def _origin(inventory: Json) -> Json:
    return {"repo_url": inventory["repo_url"], "repo_sha": inventory["repo_sha"]}


def _build_facts(
    context: WorkerContext, inventory: Json, collector: ClaimCollector, claims: list[Json], facts: ReadmeFacts
) -> Json:
    kept = {claim["claim_id"] for claim in claims}
    config = context.config
    return {
        "schema_version": "1.0",
        "product_name": collector.product,
        "product_slug": config["product_slug"],
        **_origin(inventory),
        "positioning": {"tagline": facts.tagline, "claim_id": facts.tagline_id if facts.tagline_id in kept else None},
        "overview": [identity for identity in facts.overview if identity in kept],
        "feature_groups": _kept_groups(facts.feature_groups, kept),
        "changes": _kept_groups(facts.changes, kept),
        "install_commands": [each for each in facts.install if each["claim_id"] in kept],
        "supported_platforms": [config["target_platform"]],
        "claims": [{key: value for key, value in claim.items() if key != "citations"} for claim in claims],
        "claim_groups": {name: [each for each in collector.groups.get(name, []) if each in kept] for name in _GROUPS},
        "supported_formats": _formats(claims),
        "workflows": [],
        "example_inventory": inventory["example_paths"],
    }


def _kept_groups(groups: list[Json], kept: set[str]) -> list[Json]:
    found = [{**group, "claim_ids": [each for each in group["claim_ids"] if each in kept]} for group in groups]
    return [group for group in found if group["claim_ids"]]


def _formats(claims: list[Json]) -> list[Json]:
    """Return the formats named by a claim that is not a limitation."""
    found: dict[str, str] = {}
    for claim in claims:
        if claim["claim_kind"] != "limitation":
            for format_name in re.findall(r"\b[A-Z0-9]{2,5}\b", claim["claim_text"]):
                if format_name in FORMATS:
                    found.setdefault(format_name, claim["claim_id"])
    return [{"format": format_name, "claim_id": found[format_name]} for format_name in sorted(found)]


def _collect_package(
    context: WorkerContext, inventory: Json, collector: ClaimCollector, packages: list[Metadata]
) -> Json:
    """Add the claims of the package files. Returns name, version and licence of the package."""
    package: Json = {}
    for metadata in packages:
        if metadata.requirement:
            line = metadata.line("requirement")
            text = prose.inline(metadata.requirement)
            collector.add(text, "requirement", Origin(metadata.path, line, line), "compatibility_notes")
        for key in ("name", "version", "license"):
            value = getattr(metadata, key)
            if value and f"package_{key}" not in package and key not in package:
                package["package_name" if key == "name" else key] = value[:100]
                if key == "license":
                    origin = Origin(metadata.path, metadata.line(key), metadata.line(key))
                    collector.add(f"Its licence is {prose.code(value)}.", "license", origin, "compatibility_notes")
    licence_path: str | None = inventory["repo_profile"]["license_path"]
    if "license" not in package and licence_path is not None:
        head = _read_text(context, licence_path)[:400]
        found = next((name for text, name in _LICENCES if text.lower() in head.lower()), None)
        if found is not None:
            package["license"] = found
            collector.add(f"Its licence is `{found}`.", "license", Origin(licence_path, 1, 1), "compatibility_notes")
    return package


def _changes(context: WorkerContext, inventory: Json, collector: ClaimCollector) -> list[Json]:
    paths = [file["path"] for file in inventory["paths"]]
    found = next((path for path in paths if "/" not in path and _CHANGELOG.match(path)), None)
    return readme_facts.collect_changes(collector, found, _read_document(context, found)) if found else []


def _read_document(context: WorkerContext, path: str) -> str:
    text = _read_text(context, path)
    return document.from_rst(text) if PurePosixPath(path).suffix.lower() in (".rst", ".txt", "") else text


def _read_text(context: WorkerContext, path: str) -> str:
    return context.repo.joinpath(path).read_bytes().decode("utf-8", "replace")
