"""Git, used as a reader of objects only: nothing is checked out, so no hook, filter, link or submodule ever acts."""

import os
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

_QUIET: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
_FENCE: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "credential.helper=",
    "http.followRedirects=false",
    "protocol.allow=never",
    "gc.auto=0",
    "advice.detachedHead=false",
)
_SECONDS: Final = 600
_MAX_RULES: Final = 65_536
_GITHUB: Final = "https://github.com"


@dataclass(frozen=True, slots=True)
class Blob:
    mode: str
    sha: str
    size: int
    path: str


def git(
    *arguments: str, data: bytes | None = None, protocol: str = "none", environment: Mapping[str, str] | None = None
) -> bytes:
    """One git command behind the fence. Raises `CalledProcessError`."""
    return subprocess.run(  # noqa: S603  # an argument list, never a shell
        [*_command(protocol), *arguments],
        input=data,
        stdin=subprocess.DEVNULL if data is None else None,
        capture_output=True,
        check=True,
        timeout=_SECONDS,
        env=_environment(environment or {}),
    ).stdout


def source(url: str, limits: Json) -> tuple[str, str]:
    """Where git may fetch this from, and by which protocol. Raises `Fault` for what the operator did not allow."""
    base: str = limits["github_clone_base"]
    if url.startswith(_GITHUB + "/") and base != _GITHUB:
        # The operator's own mirror of GitHub: vouched for, wherever it is.
        here = base.rstrip("/") + url.removeprefix(_GITHUB)
        return here, "file" if here.startswith(("/", "file://")) else urlsplit(here).scheme
    if url.startswith(("/", "file://")):
        return _local(url, [Path(root) for root in limits["local_roots"]]), "file"
    parts = urlsplit(url)
    plain = parts.scheme == "https" and not parts.username and not parts.query and not parts.fragment
    if plain and ".." not in parts.path and any(url.startswith(prefix) for prefix in limits["remotes"]):
        return url, "https"
    raise _refused("This repository is not one that the operator allows.")


def mirror(url: str, into: Path, limits: Json, *, newest: bool = False) -> None:
    """A bare copy of the repository, or of its newest commit, there whole or not at all; one that is there stays."""
    if into.exists():
        return
    address, protocol = source(url, limits)
    partial = into.with_name(into.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    depth = ("--depth", "1") if newest else ()
    command = ("clone", "--quiet", "--bare", "--no-hardlinks", "--no-tags", *depth, "--", address, str(partial))
    try:
        git(*command, protocol=protocol)
    except subprocess.CalledProcessError as exc:
        raise Fault(Kind.NOT_FOUND, "The repository cannot be cloned.", code="REPO_NOT_FOUND") from exc
    except subprocess.TimeoutExpired as exc:
        raise Fault(Kind.TIMEOUT, "Cloning the repository took too long.", code="TOOL_TIMEOUT") from exc
    partial.rename(into)


def commit(repository: Path, ref: str) -> str:
    """The full id of the commit that `ref` names in the copy."""
    try:
        return (
            git("--git-dir", str(repository), "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
            .decode()
            .strip()
        )
    except subprocess.CalledProcessError as exc:
        raise Fault(Kind.INVALID_INPUT, "The repository has no such commit.", details={"ref": ref}) from exc


def blobs(repository: Path, sha: str) -> Iterator[Blob]:
    """Every entry of the commit's tree, whatever its mode, by path."""
    listing = git("--git-dir", str(repository), "ls-tree", "-r", "-l", "-z", "--full-tree", sha)
    for line in listing.split(b"\0"):
        if line:
            about, _, path = line.partition(b"\t")
            mode, _, blob, size = about.split()
            yield Blob(
                mode.decode(),
                blob.decode(),
                int(size) if size.isdigit() else 0,
                path.decode("utf-8", "surrogateescape"),
            )


def write_out(repository: Path, wanted: Iterable[Blob], root: Path) -> None:
    """The blobs as plain files below `root`, which must not hold any link: it is made new."""
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
        for blob in wanted:
            process.stdin.write(f"{blob.sha}\n".encode())
            process.stdin.flush()
            target = root.joinpath(*safe_parts(blob.path))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_object(process.stdout))
        process.stdin.close()


def ignored(repository: Path, entries: Iterable[Blob], scratch: Path) -> frozenset[str]:
    """Paths that the commit's own `.gitignore` files name, though they were committed. `scratch` is made new."""
    entries = list(entries)
    rules = [blob for blob in entries if blob.mode.startswith("100") and blob.path.rpartition("/")[2] == ".gitignore"]
    write_out(repository, [blob for blob in rules if blob.size <= _MAX_RULES and is_safe(blob.path)], scratch)
    paths = b"".join(blob.path.encode("utf-8", "surrogateescape") + b"\0" for blob in entries)
    try:
        # With no index and an empty work tree but for the rules, nothing but the rules decides.
        named = git(
            *("-C", str(scratch), "-c", f"core.excludesFile={os.devnull}", "--git-dir", str(repository.resolve())),
            *("--work-tree", str(scratch.resolve()), "check-ignore", "--no-index", "-z", "--stdin"),
            data=paths,
        )
    except subprocess.CalledProcessError as exc:
        if exc.returncode != 1:
            raise
        return frozenset()  # none of them
    return frozenset(path.decode("utf-8", "surrogateescape") for path in named.split(b"\0") if path)


def _object(stream: IO[bytes]) -> bytes:
    header = stream.readline().split()
    data = stream.read(int(header[2]))
    stream.read(1)
    return data


def _local(url: str, roots: list[Path]) -> str:
    path = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url)
    try:
        resolved = path.resolve(strict=True)
    except (OSError, ValueError) as exc:
        raise Fault(Kind.NOT_FOUND, "There is no such repository.", code="REPO_NOT_FOUND") from exc
    if not any(resolved.is_relative_to(root.resolve()) for root in roots):
        raise _refused("This folder is not one that the operator allows.")
    return str(resolved)


def _command(protocol: str) -> list[str]:
    executable = shutil.which("git")
    if executable is None:
        raise Fault(Kind.UNSUPPORTED, "git is not installed.", code="TOOLCHAIN_MISSING", details={"tool": "git"})
    settings = [*_FENCE, f"protocol.{protocol}.allow=always"]
    return [executable, *(part for setting in settings for part in ("-c", setting))]


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR") if name in os.environ}
    return {**kept, **_QUIET, **more}


def _refused(message: str) -> Fault:
    return Fault(
        Kind.INVALID_INPUT,
        message,
        suggested_fix="Name a repository below `remotes` or `local_roots` of the backend's options.",
    )
