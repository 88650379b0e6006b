"""Reads name, README, files and HEAD commit of a GitHub repository, through its API or by cloning it."""

import asyncio
import base64
import binascii
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx

from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.quickstart.inference import Evidence
from backends.launch.worker_process import limits
from backends.launch.workers import git
from gateway.contract import Json
from gateway.errors import Fault, Kind

_URL: Final = re.compile(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100}?)(?:\.git)?/?")
_MAX_README_BYTES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Repository:
    """A GitHub repository at its HEAD commit."""

    url: str
    sha: str
    evidence: Evidence


def parse(url: str) -> tuple[str, str]:
    """Return owner and name. Raises `INVALID_URL`."""
    found = _URL.fullmatch(url)
    if found is None or found[2] in (".", ".."):
        raise Fault(Kind.INVALID_INPUT, "The URL is not the URL of a GitHub repository.", code="INVALID_URL")
    return found[1], found[2]


async def look_up(url: str, options: Options, outbound: OutboundClients, folder: Path) -> Repository:
    """Look up a repository by URL. Raises `INVALID_URL` or `REPO_NOT_FOUND`."""
    owner, name = parse(url)
    address = f"https://github.com/{owner}/{name}"
    if options.github_api is not None:
        return await _GitHubApi(options, outbound, f"/repos/{owner}/{name}").read(address, name)
    return await asyncio.to_thread(_clone, address, name, options, folder)


class _GitHubApi:
    def __init__(self, options: Options, outbound: OutboundClients, path: str) -> None:
        self._base = f"{(options.github_api or '').rstrip('/')}{path}"
        self._client = outbound.client(self._base)
        self._headers: Json = {"accept": "application/vnd.github+json", **outbound.github_token_header()}

    async def read(self, address: str, name: str) -> Repository:
        await self._get("")
        head: Any = await self._get("/commits/HEAD")
        listed = await self._get("/contents/")
        entries = cast("list[Json]", listed) if isinstance(listed, list) else []
        files = [str(entry.get("name", "")) for entry in entries if entry.get("type") == "file"]
        readme = await self._readme() if any(file.lower().startswith("readme") for file in files) else ""
        sha = str(cast("Json", head).get("sha", "")) if isinstance(head, dict) else ""
        if re.fullmatch(r"[0-9a-f]{40}", sha) is None:
            raise _unavailable()
        return Repository(address, sha, Evidence(name, readme, files))

    async def _readme(self) -> str:
        response_body = await self._get("/readme")
        try:
            return base64.b64decode(str(response_body.get("content", "")))[:_MAX_README_BYTES].decode(
                "utf-8", "replace"
            )
        except binascii.Error:
            return ""

    async def _get(self, path: str) -> Any:
        try:
            response = await self._client.get(self._base + path, headers=self._headers, timeout=10)
        except httpx.HTTPError as exc:
            raise _unavailable() from exc
        if response.status_code in (401, 403, 404, 409, 451):
            raise _not_found()
        if response.status_code != 200:
            raise _unavailable()
        try:
            return response.json()
        except ValueError as exc:
            raise _unavailable() from exc


def _clone(address: str, name: str, options: Options, folder: Path) -> Repository:
    with tempfile.TemporaryDirectory(dir=folder, prefix="lookup-") as temporary:
        copy = Path(temporary) / "repo.git"
        git.mirror(address, copy, limits(options), newest=True)
        try:
            sha = git.resolve_commit(copy, "HEAD")
        except Fault as exc:
            raise _not_found() from exc
        top = [blob for blob in git.list_blobs(copy, sha) if "/" not in blob.path and blob.mode != "160000"]
        readme = next(
            (blob for blob in top if blob.path.lower().startswith("readme") and blob.size <= _MAX_README_BYTES), None
        )
        text = b"" if readme is None else _blob(copy, readme.sha)
        return Repository(address, sha, Evidence(name, text.decode("utf-8", "replace"), [blob.path for blob in top]))


def _blob(copy: Path, sha: str) -> bytes:
    try:
        return git.git("--git-dir", str(copy), "cat-file", "blob", sha)
    except subprocess.CalledProcessError:
        return b""


def _not_found() -> Fault:
    return Fault(
        Kind.NOT_FOUND, "The repository does not exist or cannot be read.", code="REPO_NOT_FOUND", retryable=False
    )


def _unavailable() -> Fault:
    return Fault(Kind.UNAVAILABLE, "GitHub does not respond.", code="REPO_NOT_FOUND", retryable=True)
