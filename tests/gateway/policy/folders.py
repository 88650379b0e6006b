"""Policy folders for tests: the default guards with the test's own grants."""

import shutil
from pathlib import Path

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED


def policy_folder(parent: Path, grants: str = "", args: str = "", tenant: str | None = None, **more: str) -> Path:
    """Copy the default policies; `grants` and `args` replace the defaults or belong to `tenant`."""
    folder = parent / "policies"
    if not folder.exists():
        shutil.copytree(SHIPPED, folder)
    policy_set = folder / ("default" if tenant is None else f"tenants/{tenant}")
    policy_set.mkdir(parents=True, exist_ok=True)
    if grants:
        (policy_set / "10-grants.cedar").write_text(grants)
    if args:
        (policy_set / "args.yaml").write_text(args)
    for name, text in more.items():
        (folder / name.replace("__", "/")).write_text(text)
    return folder


def load_policies(folder: Path) -> ActivePolicies:
    return ActivePolicies(folder, load(folder), ())
