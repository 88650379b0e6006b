"""The site as it was cloned: what the run's changes are measured against."""

import subprocess
from collections.abc import Iterable

from backends.launch.paths import is_safe, within
from backends.launch.serialization import canonical, digest, write_whole
from backends.launch.workers.context import Bench
from backends.launch.workers.git import git


def base_sha(bench: Bench) -> str:
    return bench.read("site_context.json")["site_sha"]


def base_file(bench: Bench, path: str) -> bytes | None:
    repository = bench.folder / "work" / "site.git"
    try:
        return git("--git-dir", str(repository), "cat-file", "blob", f"{base_sha(bench)}:{path}")
    except subprocess.CalledProcessError:
        return None


def restore(bench: Bench, paths: Iterable[str]) -> None:
    """Put these files of the worktree back as they were cloned."""
    for path in paths:
        before = base_file(bench, path)
        if before is None:
            bench.site.joinpath(path).unlink(missing_ok=True)
        else:
            write_whole(bench.site / path, before)


def changed(bench: Bench) -> list[str]:
    """Paths inside the fence whose files differ from the clone, or are gone."""
    repository = str(bench.folder / "work" / "site.git")
    listing = git("--git-dir", repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base_sha(bench))
    cloned = {name.decode("utf-8", "surrogateescape") for name in listing.split(b"\0") if name}
    allowed = bench.config["allowed_paths"]
    here = {path for path in files(bench) if within(path, allowed)}
    before = {path for path in cloned if is_safe(path) and within(path, allowed)}
    same = {path for path in here & before if (bench.site / path).read_bytes() == base_file(bench, path)}
    left_out = {each["path"] for each in bench.read("site_context.json")["left_out"]}
    return sorted((here | before) - same - left_out)


def files(bench: Bench) -> list[str]:
    """The worktree's files, by path; links, which only another hand can have made, are not followed."""
    root = bench.site
    found = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path.relative_to(root).as_posix() for path in found)


def tree_digest(bench: Bench) -> str:
    """One digest for the whole worktree: what a validation judged."""
    return digest(canonical([[path, digest((bench.site / path).read_bytes())] for path in files(bench)]))
