"""Creates run folders by running the workers directly, up to the state before validation."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import yaml

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import build_run_config
from backends.launch.worker_process import limits
from backends.launch.workers.context import WorkerContext

ORDER = ("scout", "facts", "snippets", "plan", "draft", "link")


def run_workers(folder: Path, **overrides: Any) -> WorkerContext:
    """Run all workers up to the linked site. `product` and `site` override the sample repositories."""
    repositories = folder / "repositories"
    if not repositories.exists():
        sample.create_repositories(repositories)
    options = Options(
        local_roots=(repositories,),
        site_repo_url=str(overrides.pop("site", repositories / "site")),
        github_clone_base=repositories.as_uri(),
        **overrides.pop("options", {}),
    )
    url = overrides.pop("product", sample.PRODUCT_URL)
    config = {**build_run_config(options, "3d", "python", "en", url, "0" * 40), **overrides}
    run = folder / "run"
    for name in ("work", "artifacts", "drafts", "reports", "logs"):
        (run / name).mkdir(parents=True)
    (run / "run_config.yaml").write_text(yaml.safe_dump(config))
    context = WorkerContext("r_2026-01-01T00-00-00Z_00000000", run, config, limits(options))
    for worker in ORDER:
        scopes = config["required_sections"] if worker == "draft" else ["run"]
        for scope in scopes:
            run_worker(context, worker, scope)
    return context


def run_worker(context: WorkerContext, worker: str, scope: str = "run") -> WorkerContext:
    item_context = WorkerContext(context.run_id, context.folder, context.config, context.limits, scope)
    importlib.import_module(f"backends.launch.workers.{worker}").run(item_context)
    return item_context


def copy_run(context: WorkerContext, folder: Path, **config: Any) -> WorkerContext:
    """Copy the run to another folder, so that a test can modify it."""
    shutil.copytree(context.folder, folder, symlinks=True)
    return WorkerContext(context.run_id, folder, {**context.config, **config}, context.limits)
