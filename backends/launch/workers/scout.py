"""W1: clone the inputs, take stock of the product's repository, and learn the site."""

import fnmatch
import json
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

import yaml

from backends.launch.paths import is_safe
from backends.launch.serialization import canonical, digest
from backends.launch.states import SECTIONS
from backends.launch.workers import git
from backends.launch.workers.context import Bench
from backends.launch.workers.frontmatter import split
from backends.launch.workers.ingestion import Wanted, ingested, phantoms, without_binaries
from backends.launch.workers.languages import LANGUAGES
from gateway.contract import Json
from gateway.errors import Fault, Kind

PACKAGE_FILES: Final = (
    "pyproject.toml", "setup.py", "setup.cfg", "package.json", "pom.xml", "build.gradle", "build.gradle.kts", "go.mod",
    "Cargo.toml", "composer.json", "Gemfile", "CMakeLists.txt", "Package.swift", "*.csproj", "*.gemspec",
)  # fmt: skip
CONFIGS: Final = (
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
_SAMPLED: Final = 50
HEAD: Final = "0" * 40
"""As a commit: the newest one, which is pinned here."""


def run(bench: Bench) -> None:
    work, config = bench.folder / "work", bench.config
    git.mirror(config["github_repo_url"], work / "repo.git", bench.limits)
    git.mirror(config["site_repo_url"], work / "site.git", bench.limits)
    repo_sha = git.commit(work / "repo.git", "HEAD" if config["github_ref"] == HEAD else config["github_ref"])
    site_sha = git.commit(work / "site.git", config.get("site_ref") or "HEAD")
    bench.say("INPUTS_CLONED", repo_sha=repo_sha, site_sha=site_sha, **_workflows(bench))
    entries = list(git.blobs(work / "repo.git", repo_sha))
    taken, left_out = _choose(entries, bench, ingested(config, _ignored(bench, entries)))
    git.write_out(work / "repo.git", taken, bench.repo)
    if not config.get("ingestion", {}).get("record_binary_files", True):
        taken, binary = without_binaries(bench.repo, taken)
        left_out = sorted([*left_out, *binary], key=lambda each: each["path"])
    bench.write("repo_inventory.json", _inventory(bench, repo_sha, taken, left_out))
    pages, site_left_out = _choose(git.blobs(work / "site.git", site_sha), bench, lambda path: True)
    git.write_out(work / "site.git", pages, bench.site)
    _learn_site(bench, site_sha, [blob.path for blob in pages], site_left_out)


def _ignored(bench: Bench, entries: list[git.Blob]) -> frozenset[str]:
    """What the repository itself asks to leave alone, where the run's settings care."""
    if bench.config.get("ingestion", {}).get("gitignore_mode", "ignore") == "ignore":
        return frozenset()
    return git.ignored(bench.folder / "work" / "repo.git", entries, bench.folder / "work" / "ignore-rules")


def _workflows(bench: Bench) -> Json:
    """The repository of workflows, if the run names one: cloned and pinned beside the others, and never run."""
    if not (url := bench.config.get("workflows_repo_url")):
        return {}
    mirror = bench.folder / "work" / "workflows.git"
    git.mirror(url, mirror, bench.limits)
    sha = git.commit(mirror, bench.config.get("workflows_ref") or "HEAD")
    taken, _ = _choose(git.blobs(mirror, sha), bench, lambda path: True)
    git.write_out(mirror, taken, bench.folder / "work" / "workflows")
    return {"workflows_sha": sha}


def _choose(entries: Any, bench: Bench, wanted: Wanted) -> tuple[list[git.Blob], list[Json]]:
    """Which entries are written out: plain files with plain names, within the operator's limits."""
    taken: list[git.Blob] = []
    left_out: list[Json] = []
    total = 0
    for blob in sorted(entries, key=lambda entry: entry.path):
        reason = _reason(blob, bench.limits, wanted)
        if reason is None and (
            len(taken) >= bench.limits["max_repo_files"] or total + blob.size > bench.limits["max_repo_bytes"]
        ):
            reason = "limit"
        if reason is None:
            taken.append(blob)
            total += blob.size
        else:
            left_out.append({"path": blob.path.encode("ascii", "backslashreplace").decode()[:300], "reason": reason})
    return taken, left_out


def _reason(blob: git.Blob, limits: Json, wanted: Wanted) -> str | None:
    if blob.mode == "120000":
        return "symlink"
    if blob.mode == "160000":
        return "submodule"
    if not is_safe(blob.path):
        return "unsafe_name"
    if blob.size > limits["max_file_bytes"]:
        return "too_large"
    return None if wanted(blob.path) else "excluded"


def _inventory(bench: Bench, sha: str, taken: list[git.Blob], left_out: list[Json]) -> Json:
    paths = [_file(blob) for blob in taken]
    counted = Counter(file["language"] for file in paths if "language" in file)
    names = [blob.path for blob in taken]
    documents = _documents(names, bench.config)
    detect = bench.config.get("ingestion", {}).get("detect_phantom_paths", True)
    return {
        "schema_version": "1.0",
        "repo_url": bench.config["github_repo_url"],
        "repo_sha": sha,
        "fingerprint": digest(canonical([[blob.path, blob.sha] for blob in taken])),
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
        "phantom_paths": phantoms(bench.repo, documents, names) if detect else [],
        "example_paths": _examples(names, bench.config),
        "package_files": [name for name in names if "/" not in name and _is_package(name)],
        "left_out": left_out,
    }


def _file(blob: git.Blob) -> Json:
    file: Json = {"path": blob.path, "sha": blob.sha, "bytes": blob.size}
    language = LANGUAGES.get(PurePosixPath(blob.path).suffix.lower())
    return {**file, "language": language} if language else file


def _documents(names: list[str], config: Json) -> list[str]:
    """README first, then what lies in the folders for documents."""
    roots = tuple(config.get("repo_hints", {}).get("preferred_docs_roots", ())) or ("docs", "doc")
    readme = [name for name in names if "/" not in name and name.lower().startswith("readme")]
    documents = [name for name in names if name.endswith(".md") and name.split("/")[0] in roots]
    return [*readme, *documents]


def _examples(names: list[str], config: Json) -> list[str]:
    hints = (
        *config.get("repo_hints", {}).get("preferred_examples_roots", ()),
        *config.get("ingestion", {}).get("example_directories", ()),
    )
    roots = hints or ("examples", "example", "samples", "demos")
    return [name for name in names if name.split("/")[0] in roots and PurePosixPath(name).suffix.lower() in LANGUAGES]


def _is_package(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in PACKAGE_FILES)


# ---- the site ----


def _learn_site(bench: Bench, sha: str, names: list[str], left_out: list[Json]) -> None:
    config = bench.config
    files = site_configs(names, config.get("hugo", {}).get("config_dir", "configs"))
    content_root = config["site_layout"]["content_root"]
    pages = [name for name in names if name.startswith(content_root + "/") and name.endswith(".md")]
    context: Json = {
        "schema_version": "1.0",
        "site_url": config["site_repo_url"],
        "site_sha": sha,
        "content_root": content_root,
        "config_files": files,
        "existing_pages": pages,
        "left_out": left_out,
    }
    bench.write("site_context.json", context)
    bench.write("frontmatter_contract.json", {"schema_version": "1.0", "sections": _front_matter(bench, pages)})
    bench.write("hugo_facts.json", _hugo_facts(bench.site, files))


def site_configs(names: list[str], config_dir: str) -> list[str]:
    """Hugo's own settings files: at the root, or one for each section in the settings' folder."""
    roots = [name for name in names if name in CONFIGS or name.startswith("config/_default/")]
    return roots or [
        name for name in names if name.startswith(config_dir + "/") and PurePosixPath(name).suffix in _READERS
    ]


def _front_matter(bench: Bench, pages: list[str]) -> Json:
    sections: Json = {}
    for section in SECTIONS:
        root = bench.config["site_layout"]["subdomain_roots"][section]
        sampled = [page for page in pages if page.startswith(root + "/")][:_SAMPLED]
        keys = [frozenset(_keys(bench.site / page)) for page in sampled]
        common = frozenset[str].intersection(*keys) if keys else frozenset[str]()
        seen = sorted(frozenset[str]().union(*keys))
        sections[section] = {
            "required_keys": sorted({"title"} | (common & _KNOWN)),
            "seen_keys": seen,
            "sampled": len(sampled),
        }
    return sections


# What the writer can fill in; a key of one site's own making cannot be asked of a page.
_KNOWN: Final = frozenset({"title", "description", "url", "weight", "type", "layout", "keywords"})


def _keys(page: Path) -> list[str]:
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
    """A settings file of Hugo's as an object. Raises `Fault` for one that cannot be read."""
    try:
        value: Any = _READERS[path.suffix](path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as exc:
        raise Fault(
            Kind.INVALID_INPUT, "A settings file of the site cannot be read.", details={"file": path.name}
        ) from exc
    return cast("Json", value) if isinstance(value, dict) else {}
