"""Safe access to git repositories: objects are only read, never checked out.

No hook, filter, symlink or submodule of a cloned repository takes effect.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from backends.launch.paths import is_safe, safe_parts
from gateway.contract import Json
from gateway.errors import Fault, Kind

_BASE_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_RESTRICTIVE_CONFIG: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "credential.helper=",
    "http.followRedirects=false",
    "protocol.allow=never",
    "gc.auto=0",
    "advice.detachedHead=false",
)
_TIMEOUT_SECONDS: Final = 600
_MAX_IGNORE_FILE_BYTES: Final = 65_536
_NETWORK_FAILURE: Final = re.compile(
    r"could not resolve host|failed to connect|connection (?:refused|reset|timed out)|operation timed out"
    r"|couldn't connect|empty reply from server|early eof|network is unreachable|ssl connect error"
    r"|http 5\d\d|error: 5\d\d|rpc failed",
    re.IGNORECASE,
)
_GITHUB: Final = "https://github.com"


@dataclass(frozen=True, slots=True)
class Blob:
    """An entry of a commit's tree."""

    mode: str
    sha: str
    size: int
    path: str


def git(
    *arguments: str, data: bytes | None = None, protocol: str = "none", environment: Mapping[str, str] | None = None
) -> bytes:
    """Run one git command with the restrictive configuration. Raises `CalledProcessError`."""
    return subprocess.run(  # noqa: S603  # an argument list, never a shell
        [*_command(protocol), *arguments],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        check=True,
        timeout=_TIMEOUT_SECONDS,
        env=_environment(environment or {}),
    ).stdout


def resolve_source(url: str, limits: Json) -> tuple[str, str]:
    """Return the URL to fetch from and its protocol. Raises `Fault` for a URL that the operator does not allow."""
    base: str = limits["github_clone_base"]
    if url.startswith(_GITHUB + "/") and base != _GITHUB:
        # The operator's mirror of GitHub is trusted, whatever its URL.
        mirrored = base.rstrip("/") + url.removeprefix(_GITHUB)
        return mirrored, "file" if mirrored.startswith(("/", "file://")) else urlsplit(mirrored).scheme
    if url.startswith(("/", "file://")):
        return _resolve_local(url, [Path(root) for root in limits["local_roots"]]), "file"
    parts = urlsplit(url)
    plain = parts.scheme == "https" and not parts.username and not parts.query and not parts.fragment
    if plain and ".." not in parts.path and any(url.startswith(prefix) for prefix in limits["remotes"]):
        return url, "https"
    raise _not_allowed("The operator does not allow this repository.")


def mirror(url: str, into: Path, limits: Json, *, newest: bool = False) -> None:
    """Clone the repository, or only its newest commit, as a bare copy. The copy appears atomically.

    Does nothing if the copy exists.
    """
    if into.exists():
        return
    address, protocol = resolve_source(url, limits)
    partial = into.with_name(into.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    depth = ("--depth", "1") if newest else ()
    command = ("clone", "--quiet", "--bare", "--no-hardlinks", "--no-tags", *depth, "--", address, str(partial))
    try:
        git(*command, protocol=protocol)
    except subprocess.CalledProcessError as exc:
        raise _clone_fault(bytes(exc.stderr or b"").decode("utf-8", "replace")) from exc
    except subprocess.TimeoutExpired as exc:
        message = "Cloning the repository took too long."
        raise Fault(Kind.TIMEOUT, message, code="TOOL_TIMEOUT", retryable=True) from exc
    partial.rename(into)


def _clone_fault(output: str) -> Fault:
    """Return the fault of a failed clone. A network failure may pass; a missing or oversized repository does not."""
    if _NETWORK_FAILURE.search(output):
        message = "The repository cannot be reached."
        return Fault(Kind.UNAVAILABLE, message, code="REPO_NOT_FOUND", retryable=True)
    return Fault(Kind.NOT_FOUND, "The repository cannot be cloned.", code="REPO_NOT_FOUND")


def resolve_commit(repository: Path, ref: str) -> str:
    """Return the full id of the commit that `ref` names."""
    try:
        return (
            git("--git-dir", str(repository), "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
            .decode()
            .strip()
        )
    except subprocess.CalledProcessError as exc:
        raise Fault(Kind.INVALID_INPUT, "The repository has no such commit.", details={"ref": ref}) from exc


def list_blobs(repository: Path, sha: str) -> Iterator[Blob]:
    """Yield every entry of the commit's tree, including symlinks and submodules."""
    listing = git("--git-dir", str(repository), "ls-tree", "-r", "-l", "-z", "--full-tree", sha)
    for line in listing.split(b"\0"):
        if line:
            attributes, _, path = line.partition(b"\t")
            mode, _, blob, size = attributes.split()
            yield Blob(
                mode.decode(),
                blob.decode(),
                int(size) if size.isdigit() else 0,
                path.decode("utf-8", "surrogateescape"),
            )


def export_blobs(repository: Path, blobs: Iterable[Blob], root: Path) -> None:
    """Write the blobs as plain files below `root`, which is recreated so that it contains no symlinks."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with subprocess.Popen(  # noqa: S603
        [*_command("none"), "--git-dir", str(repository), "cat-file", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment({}),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for blob in blobs:
            process.stdin.write(f"{blob.sha}\n".encode())
            process.stdin.flush()
            target = root.joinpath(*safe_parts(blob.path))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_read_object(process.stdout))
        process.stdin.close()


def ignored_paths(repository: Path, entries: Iterable[Blob], scratch: Path) -> frozenset[str]:
    """Return the committed paths that the commit's `.gitignore` files match. `scratch` is recreated."""
    entries = list(entries)
    rules = [blob for blob in entries if blob.mode.startswith("100") and blob.path.rpartition("/")[2] == ".gitignore"]
    export_blobs(
        repository, [blob for blob in rules if blob.size <= _MAX_IGNORE_FILE_BYTES and is_safe(blob.path)], scratch
    )
    paths = b"".join(blob.path.encode("utf-8", "surrogateescape") + b"\0" for blob in entries)
    try:
        # There is no index, and the work tree contains only the rules, so only the rules decide.
        matched = git(
            *("-C", str(scratch), "-c", f"core.excludesFile={os.devnull}", "--git-dir", str(repository.resolve())),
            *("--work-tree", str(scratch.resolve()), "check-ignore", "--no-index", "-z", "--stdin"),
            data=paths,
        )
    except subprocess.CalledProcessError as exc:
        if exc.returncode != 1:
            raise
        return frozenset()  # exit status 1: no path is ignored
    return frozenset(path.decode("utf-8", "surrogateescape") for path in matched.split(b"\0") if path)


def _read_object(stream: IO[bytes]) -> bytes:
    header = stream.readline().split()
    data = stream.read(int(header[2]))
    stream.read(1)
    return data


def _resolve_local(url: str, roots: list[Path]) -> str:
    path = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url)
    try:
        resolved = path.resolve(strict=True)
    except (OSError, ValueError) as exc:
        raise Fault(Kind.NOT_FOUND, "There is no such repository.", code="REPO_NOT_FOUND") from exc
    if not any(resolved.is_relative_to(root.resolve()) for root in roots):
        raise _not_allowed("The operator does not allow repositories in this folder.")
    return str(resolved)


def _command(protocol: str) -> list[str]:
    executable = shutil.which("git")
    if executable is None:
        raise Fault(Kind.UNSUPPORTED, "git is not installed.", code="TOOLCHAIN_MISSING", details={"tool": "git"})
    settings = [*_RESTRICTIVE_CONFIG, f"protocol.{protocol}.allow=always"]
    return [executable, *(part for setting in settings for part in ("-c", setting))]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: os.environ[name] for name in ("PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ
    }
    return {**inherited, **_BASE_ENVIRONMENT, **extra}


def _not_allowed(message: str) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        message,
        suggested_fix="Use a repository below `remotes` or `local_roots` of the backend's options.",
    )
