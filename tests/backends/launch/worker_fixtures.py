"""A run's folder, brought by the workers themselves to the point before its validation."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import yaml

from backends.launch import sample
from backends.launch.options import Options
from backends.launch.quickstart.config import run_config
from backends.launch.worker_process import limits
from backends.launch.workers.context import Bench

ORDER = ("scout", "facts", "snippets", "plan", "draft", "link")


def worked(folder: Path, **more: Any) -> Bench:
    """Everything up to the linked site, for the sample product; `product` and `site` may name other repositories."""
    repositories = folder / "repositories"
    if not repositories.exists():
        sample.make(repositories)
    options = Options(
        local_roots=(repositories,),
        site_repo_url=str(more.pop("site", repositories / "site")),
        github_clone_base=repositories.as_uri(),
        **more.pop("options", {}),
    )
    url = more.pop("product", sample.PRODUCT_URL)
    config = {**run_config(options, "3d", "python", "en", url, "0" * 40), **more}
    run = folder / "run"
    for name in ("work", "artifacts", "drafts", "reports", "logs"):
        (run / name).mkdir(parents=True)
    (run / "run_config.yaml").write_text(yaml.safe_dump(config))
    bench = Bench("r_2026-01-01T00-00-00Z_00000000", run, config, limits(options))
    for worker in ORDER:
        scopes = config["required_sections"] if worker == "draft" else ["run"]
        for scope in scopes:
            work(bench, worker, scope)
    return bench


def work(bench: Bench, worker: str, scope: str = "run") -> Bench:
    at = Bench(bench.run_id, bench.folder, bench.config, bench.limits, scope)
    importlib.import_module(f"backends.launch.workers.{worker}").run(at)
    return at


def copied(bench: Bench, folder: Path, **config: Any) -> Bench:
    """The same run in a folder of its own, to be broken."""
    shutil.copytree(bench.folder, folder, symlinks=True)
    return Bench(bench.run_id, folder, {**bench.config, **config}, bench.limits)
