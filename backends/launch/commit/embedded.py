"""Embedded commit service: commits to a git repository with plumbing commands and stores pull requests as records.

It runs in a run's worker process. It changes no working copy and runs no hooks.
"""

import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.launch import json_schemas
from backends.launch.events import now
from backends.launch.paths import is_within
from backends.launch.serialization import canonical_json, digest, pretty_json, write_atomic
from backends.launch.workers import git
from backends.launch.workers.patches import apply
from gateway.contract import Json
from gateway.errors import Fault, Kind

_ZERO_SHA: Final = "0" * 40


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a commit."""

    name: str = "Gatehouse"
    email: str = "gatehouse@localhost"

    @classmethod
    def from_config(cls, service: Json) -> "Author":
        """Use the author of the run's settings, or the defaults."""
        return cls(service.get("author_name") or cls().name, service.get("author_email") or cls().email)


def commit(request: Json, limits: Json, service: Path, run: Path, author: Author | None = None) -> Json:
    """Handle a commit_request. A repeated idempotency key returns the stored response."""
    _check_schema("commit_request", request)
    outside = [
        patch["path"]
        for patch in request["patch_bundle"]["patches"]
        if not is_within(patch["path"], request["allowed_paths"])
    ]
    if outside:
        raise _rejection("PATH_NOT_ALLOWED", "The commit would change paths that are not allowed.", paths=outside)
    commit_author = author or Author()
    return _run_once(
        service,
        "commit",
        request,
        lambda: _commit(request, _target_repository(request, limits, service, run), commit_author),
    )


def open_pr(request: Json, service: Path) -> Json:
    """Handle an open_pr_request. A repeated idempotency key returns the stored response."""
    _check_schema("open_pr_request", request)

    def record() -> Json:
        number = len(list(service.glob("pull-*.json"))) + 1
        url = f"resource://run/{request['run_id']}/pr.json"
        write_atomic(service / f"pull-{number}.json", pretty_json({**request, "pr_number": number, "state": "open"}))
        return {**_common_fields(request), "pr_url": url, "pr_number": number}

    return _run_once(service, "open_pr", request, record)


def _run_once(service: Path, operation: str, request: Json, act: Callable[[], Json]) -> Json:
    name = digest(canonical_json([operation, request["repo_url"], request["idempotency_key"]]))
    response_file = service / f"{operation}-{name}.json"
    with _lock(service):
        if response_file.is_file():
            return json.loads(response_file.read_bytes())
        response = {**act(), "created_at": now()}
        write_atomic(response_file, pretty_json(response))
        return response


def _commit(request: Json, repository: Path, author: Author) -> Json:
    git_dir = ("--git-dir", str(repository))
    base, branch = request["base_ref"], f"refs/heads/{request['branch_name']}"
    try:
        git.git(*git_dir, "cat-file", "-e", f"{base}^{{commit}}")
        git.git("check-ref-format", branch)
    except subprocess.CalledProcessError as exc:
        raise _rejection("BASE_MOVED", "The repository does not have the base of this commit.") from exc
    existing = _branch_head(git_dir, branch)
    sha = _write_commit(git_dir, request, base, author)
    if existing is not None and _tree(git_dir, existing) != _tree(git_dir, sha):
        raise _rejection("BRANCH_EXISTS", "The branch exists already.")
    if existing is None:
        git.git(*git_dir, "update-ref", branch, sha, _ZERO_SHA)
    return {**_common_fields(request), "commit_sha": existing or sha}


def _write_commit(git_dir: tuple[str, str], request: Json, base: str, author: Author) -> str:
    """Write the commit object for the request, without a branch, and return its id."""
    with tempfile.TemporaryDirectory(prefix="launch-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.git(*git_dir, "read-tree", base, environment=index)
        for patch in request["patch_bundle"]["patches"]:
            after = _patched_content(git_dir, base, patch, Path(folder) / "tree", request["allowed_paths"])
            if after is None:
                git.git(*git_dir, "update-index", "--force-remove", "--", patch["path"], environment=index)
            else:
                blob = git.git(*git_dir, "hash-object", "-w", "--stdin", "--no-filters", data=after).decode().strip()
                git.git(
                    *git_dir,
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    f"100644,{blob},{patch['path']}",
                    environment=index,
                )
        tree = git.git(*git_dir, "write-tree", environment=index).decode().strip()
    message = f"{request['commit_message']}\n\n{request['commit_body']}\n".encode()
    identity = {"NAME": author.name, "EMAIL": author.email}
    people = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in identity.items()}
    return (
        git.git(*git_dir, "commit-tree", tree, "-p", base, "-F", "-", data=message, environment=people).decode().strip()
    )


def _patched_content(git_dir: tuple[str, str], base: str, patch: Json, root: Path, allowed: list[str]) -> bytes | None:
    """Return the file's content after the patch, computed in a temporary folder; None if the patch deletes it."""
    target = root / patch["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.write_bytes(git.git(*git_dir, "cat-file", "blob", f"{base}:{patch['path']}"))
    except subprocess.CalledProcessError:
        target.unlink(missing_ok=True)
    if apply(patch, root, allowed) not in ("applied", "already_applied"):
        raise _rejection("PATCH_CONFLICT", "A patch does not fit its base.", path=patch["path"])
    return target.read_bytes() if target.is_file() else None


def _target_repository(request: Json, limits: Json, service: Path, run: Path) -> Path:
    """Return the repository that gets the branch: the site's if it is local, else the tenant's copy."""
    address, protocol = git.resolve_source(request["repo_url"], limits)
    if protocol == "file":
        path = Path(address.removeprefix("file://"))
        return path / ".git" if (path / ".git").is_dir() else path
    copy = service / f"{digest(request['repo_url'].encode())[:16]}.git"
    if not copy.exists():
        git.git(
            "clone",
            "--quiet",
            "--bare",
            "--no-hardlinks",
            "--",
            str(run / "work" / "site.git"),
            str(copy),
            protocol="file",
        )
    return copy


def _branch_head(git_dir: tuple[str, str], branch: str) -> str | None:
    try:
        return git.git(*git_dir, "rev-parse", "--verify", "--quiet", branch).decode().strip()
    except subprocess.CalledProcessError:
        return None


def _tree(git_dir: tuple[str, str], sha: str) -> str:
    return git.git(*git_dir, "rev-parse", f"{sha}^{{tree}}").decode().strip()


def _common_fields(request: Json) -> Json:
    return {key: request[key] for key in ("schema_version", "run_id", "repo_url", "base_ref", "branch_name")}


def _check_schema(name: str, request: Json) -> None:
    if problems := json_schemas.problems(name, request):
        raise _rejection("INVALID_REQUEST", "The request does not match its schema.", errors=problems)


@contextmanager
def _lock(service: Path) -> Generator[None]:
    service.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(service / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(handle) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _rejection(code: str, message: str, **details: object) -> Fault:
    return Fault(
        Kind.UNAVAILABLE,
        message,
        code="COMMIT_SERVICE_ERROR",
        retryable=False,
        details={"service_code": code, **details},
    )
