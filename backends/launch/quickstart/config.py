"""Builds a complete run_config from the few fields that a quick start knows."""

from typing import Final

from backends.launch.options import Options
from backends.launch.quickstart.vocabulary import PLATFORM_FAMILY, PLATFORM_TITLES, family_title
from backends.launch.states import SECTIONS
from backends.launch.workers.page_sources import section_folder
from gateway.contract import Json


def build_run_config(
    options: Options, family: str, platform: str, locale: str, repo_url: str, ref: str, name: str = ""
) -> Json:
    """Return a run_config with the defaults of a quick start. `name` is the product's name, if it is known."""
    config: Json = {
        "schema_version": "1.0",
        "product_slug": family,
        "product_name": name or f"Aspose.{family_title(family)} for {PLATFORM_TITLES[platform]}",
        "family": family,
        "target_platform": platform,
        "platform_family": PLATFORM_FAMILY.get(platform, platform),
        "locales": [locale],
        "layout_mode": "auto",
        "github_repo_url": repo_url,
        "github_ref": ref,
        "site_repo_url": options.site_repo_url,
        "required_sections": list(SECTIONS),
        "site_layout": {
            "content_root": "content",
            "subdomain_roots": {name: f"content/{name}.aspose.org" for name in SECTIONS},
            "localization": {"mode_by_section": {name: "filename" if name == "blog" else "dir" for name in SECTIONS}},
        },
        **_DEFAULT_SERVICES,
        "templates_version": "1.0",
        "ruleset_version": "1.0",
        "allow_inference": False,
        "max_fix_attempts": 3,
        "validation_profile": "local",
    }
    if options.site_ref is not None:
        config["site_ref"] = options.site_ref
    config["allowed_paths"] = [section_folder(config, section, locale) for section in SECTIONS]
    return config


_DEFAULT_SERVICES: Final[Json] = {
    "llm": {"api_base_url": "http://127.0.0.1:8000/v1", "model": "none", "decoding": {"temperature": 0.0}},
    "mcp": {"enabled": True, "listen_host": "127.0.0.1", "listen_port": 8787},
    "telemetry": {"endpoint_url": "http://localhost:8765", "project": "launch"},
    "commit_service": {
        "endpoint_url": "https://localhost:4320",
        "github_token_env": "GITHUB_TOKEN",
        "commit_message_template": "Launch {product_slug}",
        "commit_body_template": "From {github_repo_url} at {github_ref}, run {run_id}.",
    },
    "budgets": {
        "max_runtime_s": 3600,
        "max_llm_calls": 500,
        "max_llm_tokens": 2_000_000,
        "max_file_writes": 2000,
        "max_patch_attempts": 10,
        "max_lines_per_file": 1500,
        "max_files_changed": 1000,
    },
}
