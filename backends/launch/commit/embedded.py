"""A commit service on this machine: commits by plumbing to a git repository, and keeps pull requests as records.

Runs in a run's child process. No working copy is touched and no hook is run.
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
from backends.launch.paths import within
from backends.launch.serialization import canonical, digest, pretty, write_whole
from backends.launch.workers import git
from backends.launch.workers.patches import apply
from gateway.contract import Json
from gateway.errors import Fault, Kind

_ABSENT: Final = "0" * 40


@dataclass(frozen=True, slots=True)
class Author:
    """Who the commit is by."""

    name: str = "Gatehouse"
    email: str = "gatehouse@localhost"

    @classmethod
    def of(cls, service: Json) -> "Author":
        """As the run's settings say."""
        return cls(service.get("author_name") or cls().name, service.get("author_email") or cls().email)


def commit(request: Json, limits: Json, service: Path, run: Path, author: Author | None = None) -> Json:
    """The response to a commit_request; the same again for the same key."""
    _check("commit_request", request)
    outside = [
        patch["path"]
        for patch in request["patch_bundle"]["patches"]
        if not within(patch["path"], request["allowed_paths"])
    ]
    if outside:
        raise _refused("PATH_NOT_ALLOWED", "The commit would change paths that are not allowed.", paths=outside)
    by = author or Author()
    return _once(service, "commit", request, lambda: _commit(request, _target(request, limits, service, run), by))


def open_pr(request: Json, service: Path) -> Json:
    """The response to an open_pr_request; the same again for the same key."""
    _check("open_pr_request", request)

    def record() -> Json:
        number = len(list(service.glob("pull-*.json"))) + 1
        url = f"resource://run/{request['run_id']}/pr.json"
        write_whole(service / f"pull-{number}.json", pretty({**request, "pr_number": number, "state": "open"}))
        return {**_echo(request), "pr_url": url, "pr_number": number}

    return _once(service, "open_pr", request, record)


def _once(service: Path, operation: str, request: Json, act: Callable[[], Json]) -> Json:
    name = digest(canonical([operation, request["repo_url"], request["idempotency_key"]]))
    kept = service / f"{operation}-{name}.json"
    with _locked(service):
        if kept.is_file():
            return json.loads(kept.read_bytes())
        response = {**act(), "created_at": now()}
        write_whole(kept, pretty(response))
        return response


def _commit(request: Json, repository: Path, author: Author) -> Json:
    here = ("--git-dir", str(repository))
    base, branch = request["base_ref"], f"refs/heads/{request['branch_name']}"
    try:
        git.git(*here, "cat-file", "-e", f"{base}^{{commit}}")
        git.git("check-ref-format", branch)
    except subprocess.CalledProcessError as exc:
        raise _refused("BASE_MOVED", "The repository does not have the base of this commit.") from exc
    existing = _existing(here, branch)
    sha = _write(here, request, base, author)
    if existing is not None and _tree(here, existing) != _tree(here, sha):
        raise _refused("BRANCH_EXISTS", "The branch exists already.")
    if existing is None:
        git.git(*here, "update-ref", branch, sha, _ABSENT)
    return {**_echo(request), "commit_sha": existing or sha}


def _write(here: tuple[str, str], request: Json, base: str, author: Author) -> str:
    """The commit object for the request, on no branch yet."""
    with tempfile.TemporaryDirectory(prefix="launch-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.git(*here, "read-tree", base, environment=index)
        for patch in request["patch_bundle"]["patches"]:
            after = _after(here, base, patch, Path(folder) / "tree", request["allowed_paths"])
            if after is None:
                git.git(*here, "update-index", "--force-remove", "--", patch["path"], environment=index)
            else:
                blob = git.git(*here, "hash-object", "-w", "--stdin", "--no-filters", data=after).decode().strip()
                git.git(
                    *here, "update-index", "--add", "--cacheinfo", f"100644,{blob},{patch['path']}", environment=index
                )
        tree = git.git(*here, "write-tree", environment=index).decode().strip()
    message = f"{request['commit_message']}\n\n{request['commit_body']}\n".encode()
    given = {"NAME": author.name, "EMAIL": author.email}
    people = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in given.items()}
    return git.git(*here, "commit-tree", tree, "-p", base, "-F", "-", data=message, environment=people).decode().strip()


def _after(here: tuple[str, str], base: str, patch: Json, root: Path, allowed: list[str]) -> bytes | None:
    """The file after the patch, worked out beside the repository."""
    target = root / patch["path"]
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.write_bytes(git.git(*here, "cat-file", "blob", f"{base}:{patch['path']}"))
    except subprocess.CalledProcessError:
        target.unlink(missing_ok=True)
    if apply(patch, root, allowed) not in ("applied", "already_applied"):
        raise _refused("PATCH_CONFLICT", "A patch does not fit its base.", path=patch["path"])
    return target.read_bytes() if target.is_file() else None


def _target(request: Json, limits: Json, service: Path, run: Path) -> Path:
    """The repository that gets the branch: the site itself if it is on this machine, else the tenant's copy."""
    address, protocol = git.source(request["repo_url"], limits)
    if protocol == "file":
        place = Path(address.removeprefix("file://"))
        return place / ".git" if (place / ".git").is_dir() else place
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


def _existing(here: tuple[str, str], branch: str) -> str | None:
    try:
        return git.git(*here, "rev-parse", "--verify", "--quiet", branch).decode().strip()
    except subprocess.CalledProcessError:
        return None


def _tree(here: tuple[str, str], sha: str) -> str:
    return git.git(*here, "rev-parse", f"{sha}^{{tree}}").decode().strip()


def _echo(request: Json) -> Json:
    return {key: request[key] for key in ("schema_version", "run_id", "repo_url", "base_ref", "branch_name")}


def _check(name: str, request: Json) -> None:
    if wrong := json_schemas.problems(name, request):
        raise _refused("INVALID_REQUEST", "The commit service cannot read the request.", errors=wrong)


@contextmanager
def _locked(service: Path) -> Generator[None]:
    service.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(service / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(handle) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _refused(code: str, message: str, **details: object) -> Fault:
    return Fault(
        Kind.UNAVAILABLE,
        message,
        code="COMMIT_SERVICE_ERROR",
        retryable=False,
        details={"service_code": code, **details},
    )
