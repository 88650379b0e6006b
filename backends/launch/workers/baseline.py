"""The site at its cloned commit, and the differences between it and the worktree."""

import subprocess
from collections.abc import Iterable

from backends.launch.paths import is_safe, is_within
from backends.launch.serialization import canonical_json, digest, write_atomic
from backends.launch.workers.context import WorkerContext
from backends.launch.workers.git import git


def base_sha(context: WorkerContext) -> str:
    return context.read("site_context.json")["site_sha"]


def base_file(context: WorkerContext, path: str) -> bytes | None:
    repository = context.folder / "work" / "site.git"
    try:
        return git("--git-dir", str(repository), "cat-file", "blob", f"{base_sha(context)}:{path}")
    except subprocess.CalledProcessError:
        return None


def restore(context: WorkerContext, paths: Iterable[str]) -> None:
    """Reset these files of the worktree to the cloned commit."""
    for path in paths:
        before = base_file(context, path)
        if before is None:
            context.site.joinpath(path).unlink(missing_ok=True)
        else:
            write_atomic(context.site / path, before)


def changed_paths(context: WorkerContext) -> list[str]:
    """Return the allowed paths whose files differ from the cloned commit or are missing."""
    repository = str(context.folder / "work" / "site.git")
    listing = git("--git-dir", repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base_sha(context))
    cloned = {name.decode("utf-8", "surrogateescape") for name in listing.split(b"\0") if name}
    allowed = context.config["allowed_paths"]
    present = {path for path in worktree_files(context) if is_within(path, allowed)}
    before = {path for path in cloned if is_safe(path) and is_within(path, allowed)}
    unchanged = {path for path in present & before if (context.site / path).read_bytes() == base_file(context, path)}
    left_out = {each["path"] for each in context.read("site_context.json")["left_out"]}
    return sorted((present | before) - unchanged - left_out)


def worktree_files(context: WorkerContext) -> list[str]:
    """Return the paths of the worktree's files. Symlinks are skipped; the backend creates none."""
    root = context.site
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path.relative_to(root).as_posix() for path in found)


def tree_digest(context: WorkerContext) -> str:
    """Return one digest of the whole worktree, which identifies the validated state."""
    return digest(
        canonical_json([[path, digest((context.site / path).read_bytes())] for path in worktree_files(context)])
    )
