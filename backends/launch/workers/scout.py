"""W1: clones the repositories, inventories the product repository and inspects the site."""

import fnmatch
import json
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

import yaml

from backends.launch.paths import is_safe
from backends.launch.serialization import canonical_json, digest
from backends.launch.states import SECTIONS
from backends.launch.workers import git
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.frontmatter import split
from backends.launch.workers.ingestion import PathFilter, find_phantom_paths, path_filter, remove_binaries
from backends.launch.workers.languages import LANGUAGE_BY_EXTENSION
from gateway.contract import Json
from gateway.errors import Fault, Kind

PACKAGE_FILES: Final = (
    "pyproject.toml", "setup.py", "setup.cfg", "package.json", "pom.xml", "build.gradle", "build.gradle.kts", "go.mod",
    "Cargo.toml", "composer.json", "Gemfile", "CMakeLists.txt", "Package.swift", "*.csproj", "*.gemspec",
)  # fmt: skip
CONFIG_FILES: Final = (
    "hugo.toml",
    "hugo.yaml",
    "hugo.yml",
    "hugo.json",
    "config.toml",
    "config.yaml",
    "config.yml",
    "config.json",
)
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
    ".json": json.loads,
}
_MAX_SAMPLED_PAGES: Final = 50
HEAD: Final = "0" * 40
"""Placeholder commit id for the newest commit, which this worker resolves."""


def run(context: WorkerContext) -> None:
    work, config = context.folder / "work", context.config
    git.mirror(config["github_repo_url"], work / "repo.git", context.limits)
    git.mirror(config["site_repo_url"], work / "site.git", context.limits)
    repo_sha = git.resolve_commit(work / "repo.git", "HEAD" if config["github_ref"] == HEAD else config["github_ref"])
    site_sha = git.resolve_commit(work / "site.git", config.get("site_ref") or "HEAD")
    context.emit("INPUTS_CLONED", repo_sha=repo_sha, site_sha=site_sha, **_clone_workflows(context))
    entries = list(git.list_blobs(work / "repo.git", repo_sha))
    taken, left_out = _select_blobs(entries, context, path_filter(config, _ignored_paths(context, entries)))
    git.export_blobs(work / "repo.git", taken, context.repo)
    if not config.get("ingestion", {}).get("record_binary_files", True):
        taken, binary = remove_binaries(context.repo, taken)
        left_out = sorted([*left_out, *binary], key=lambda each: each["path"])
    context.write("repo_inventory.json", _build_inventory(context, repo_sha, taken, left_out))
    pages, site_left_out = _select_blobs(git.list_blobs(work / "site.git", site_sha), context, lambda path: True)
    git.export_blobs(work / "site.git", pages, context.site)
    _inspect_site(context, site_sha, [blob.path for blob in pages], site_left_out)


def _ignored_paths(context: WorkerContext, entries: list[git.Blob]) -> frozenset[str]:
    """Return the paths that the repository's .gitignore files match, if the run's settings respect them."""
    if context.config.get("ingestion", {}).get("gitignore_mode", "ignore") == "ignore":
        return frozenset()
    return git.ignored_paths(context.folder / "work" / "repo.git", entries, context.folder / "work" / "ignore-rules")


def _clone_workflows(context: WorkerContext) -> Json:
    """Clone the workflows repository if the run names one. Its content is never executed."""
    if not (url := context.config.get("workflows_repo_url")):
        return {}
    mirror = context.folder / "work" / "workflows.git"
    git.mirror(url, mirror, context.limits)
    sha = git.resolve_commit(mirror, context.config.get("workflows_ref") or "HEAD")
    taken, _ = _select_blobs(git.list_blobs(mirror, sha), context, lambda path: True)
    git.export_blobs(mirror, taken, context.folder / "work" / "workflows")
    return {"workflows_sha": sha}


def _select_blobs(entries: Any, context: WorkerContext, is_wanted: PathFilter) -> tuple[list[git.Blob], list[Json]]:
    """Select the entries to export: regular files with safe names, within the operator's limits."""
    taken: list[git.Blob] = []
    left_out: list[Json] = []
    total = 0
    for blob in sorted(entries, key=lambda entry: entry.path):
        reason = _exclusion_reason(blob, context.limits, is_wanted)
        if reason is None and (
            len(taken) >= context.limits["max_repo_files"] or total + blob.size > context.limits["max_repo_bytes"]
        ):
            reason = "limit"
        if reason is None:
            taken.append(blob)
            total += blob.size
        else:
            left_out.append({"path": blob.path.encode("ascii", "backslashreplace").decode()[:300], "reason": reason})
    return taken, left_out


def _exclusion_reason(blob: git.Blob, limits: Json, is_wanted: PathFilter) -> str | None:
    if blob.mode == "120000":
        return "symlink"
    if blob.mode == "160000":
        return "submodule"
    if not is_safe(blob.path):
        return "unsafe_name"
    if blob.size > limits["max_file_bytes"]:
        return "too_large"
    return None if is_wanted(blob.path) else "excluded"


def _build_inventory(context: WorkerContext, sha: str, taken: list[git.Blob], left_out: list[Json]) -> Json:
    paths = [_describe_file(blob) for blob in taken]
    counted = Counter(file["language"] for file in paths if "language" in file)
    names = [blob.path for blob in taken]
    documents = _find_documents(names, context.config)
    detect = context.config.get("ingestion", {}).get("detect_phantom_paths", True)
    return {
        "schema_version": "1.0",
        "repo_url": context.config["github_repo_url"],
        "repo_sha": sha,
        "fingerprint": digest(canonical_json([[blob.path, blob.sha] for blob in taken])),
        "repo_profile": {
            "languages": dict(sorted(counted.items())),
            "primary_language": max(sorted(counted), key=lambda name: counted[name], default=""),
            "file_count": len(paths),
            "license_path": next(
                (name for name in names if PurePosixPath(name).stem.upper() in ("LICENSE", "COPYING")), None
            ),
        },
        "paths": paths,
        "doc_entrypoints": documents,
        "phantom_paths": find_phantom_paths(context.repo, documents, names) if detect else [],
        "example_paths": _find_examples(names, context.config),
        "package_files": [name for name in names if "/" not in name and _is_package(name)],
        "left_out": left_out,
    }


def _describe_file(blob: git.Blob) -> Json:
    file: Json = {"path": blob.path, "sha": blob.sha, "bytes": blob.size}
    language = LANGUAGE_BY_EXTENSION.get(PurePosixPath(blob.path).suffix.lower())
    return {**file, "language": language} if language else file


def _find_documents(names: list[str], config: Json) -> list[str]:
    """Return the README, then the Markdown files in the documentation folders."""
    roots = tuple(config.get("repo_hints", {}).get("preferred_docs_roots", ())) or ("docs", "doc")
    readme = [name for name in names if "/" not in name and name.lower().startswith("readme")]
    documents = [name for name in names if name.endswith(".md") and name.split("/")[0] in roots]
    return [*readme, *documents]


def _find_examples(names: list[str], config: Json) -> list[str]:
    hints = (
        *config.get("repo_hints", {}).get("preferred_examples_roots", ()),
        *config.get("ingestion", {}).get("example_directories", ()),
    )
    roots = hints or ("examples", "example", "samples", "demos")
    return [
        name
        for name in names
        if name.split("/")[0] in roots and PurePosixPath(name).suffix.lower() in LANGUAGE_BY_EXTENSION
    ]


def _is_package(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in PACKAGE_FILES)


# ---- the site ----


def _inspect_site(context: WorkerContext, sha: str, names: list[str], left_out: list[Json]) -> None:
    config = context.config
    files = site_configs(names, config.get("hugo", {}).get("config_dir", "configs"))
    content_root = config["site_layout"]["content_root"]
    pages = [name for name in names if name.startswith(content_root + "/") and name.endswith(".md")]
    site_context: Json = {
        "schema_version": "1.0",
        "site_url": config["site_repo_url"],
        "site_sha": sha,
        "content_root": content_root,
        "config_files": files,
        "existing_pages": pages,
        "left_out": left_out,
    }
    context.write("site_context.json", site_context)
    context.write(
        "frontmatter_contract.json", {"schema_version": "1.0", "sections": _front_matter_contract(context, pages)}
    )
    context.write("hugo_facts.json", _hugo_facts(context.site, files))


def site_configs(names: list[str], config_dir: str) -> list[str]:
    """Return Hugo's settings files: those at the root, or else one per section in the settings folder."""
    roots = [name for name in names if name in CONFIG_FILES or name.startswith("config/_default/")]
    return roots or [
        name for name in names if name.startswith(config_dir + "/") and PurePosixPath(name).suffix in _READERS
    ]


def _front_matter_contract(context: WorkerContext, pages: list[str]) -> Json:
    sections: Json = {}
    for section in SECTIONS:
        root = context.config["site_layout"]["subdomain_roots"][section]
        sampled = [page for page in pages if page.startswith(root + "/")][:_MAX_SAMPLED_PAGES]
        keys = [frozenset(_front_matter_keys(context.site / page)) for page in sampled]
        common = frozenset[str].intersection(*keys) if keys else frozenset[str]()
        all_keys = sorted(frozenset[str]().union(*keys))
        sections[section] = {
            "required_keys": sorted({"title"} | (common & _FILLABLE_KEYS)),
            "seen_keys": all_keys,
            "sampled": len(sampled),
        }
    return sections


# Keys that the draft worker can fill in; custom keys of a site are never required.
_FILLABLE_KEYS: Final = frozenset({"title", "description", "url", "weight", "type", "layout", "keywords"})


def _front_matter_keys(page: Path) -> list[str]:
    try:
        matter, _ = split(page.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        return []
    return [str(key) for key in matter or {}]


def _hugo_facts(site: Path, files: list[str]) -> Json:
    merged: Json = {}
    for name in files:
        merged |= {key.lower(): value for key, value in read_config(site / name).items()}
    languages = merged.get("languages")
    theme: Any = merged.get("theme") or []
    return {
        "schema_version": "1.0",
        "config_files": files,
        "base_url": str(merged.get("baseurl", "")),
        "title": str(merged.get("title", "")),
        "default_language": str(merged.get("defaultcontentlanguage", "en")),
        "languages": sorted(cast("Json", languages)) if isinstance(languages, dict) else [],
        "themes": [str(name) for name in (cast("list[Any]", theme) if isinstance(theme, list) else [theme])],
    }


def read_config(path: Path) -> Json:
    """Parse a Hugo settings file. Raises `Fault` if it cannot be parsed."""
    try:
        value: Any = _READERS[path.suffix](path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as exc:
        raise Fault(
            Kind.INVALID_INPUT, "A settings file of the site cannot be parsed.", details={"file": path.name}
        ) from exc
    return cast("Json", value) if isinstance(value, dict) else {}
