"""Folders of policies for tests: the shipped guards with grants of the test's own."""

import shutil
from pathlib import Path

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED


def a_folder(at: Path, grants: str = "", args: str = "", tenant: str | None = None, **more: str) -> Path:
    """A copy of what ships; `grants` and `args` in place of the default's, or as a tenant's own."""
    folder = at / "policies"
    if not folder.exists():
        shutil.copytree(SHIPPED, folder)
    room = folder / ("default" if tenant is None else f"tenants/{tenant}")
    room.mkdir(parents=True, exist_ok=True)
    if grants:
        (room / "10-grants.cedar").write_text(grants)
    if args:
        (room / "args.yaml").write_text(args)
    for name, text in more.items():
        (folder / name.replace("__", "/")).write_text(text)
    return folder


def policies(folder: Path) -> ActivePolicies:
    return ActivePolicies(folder, load(folder), ())
