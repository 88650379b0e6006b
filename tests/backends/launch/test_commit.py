"""The commit service: the client of an external service, the embedded service and the patch engine."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from backends.launch import json_schemas, sample
from backends.launch.commit import embedded
from backends.launch.commit.client import CommitClient
from backends.launch.commit.keys import idempotency_key
from backends.launch.serialization import digest
from backends.launch.workers.patches import apply, build_patch
from gateway.errors import Fault

Json = dict[str, Any]


class _FakeOutbound:
    def __init__(self) -> None:
        self.http = httpx.AsyncClient(verify=False)

    def client(self, url: str) -> httpx.AsyncClient:
        return self.http

    def bearer_header(self, variable: str | None, url: str) -> Json:
        return {"authorization": "Bearer secret"}


def _request(repo: str, base: str, **overrides: Any) -> Json:
    request = {
        "schema_version": "1.0",
        "run_id": "r_2026-01-01T00-00-00Z_00000000",
        "idempotency_key": idempotency_key("r_2026-01-01T00-00-00Z_00000000", "commit"),
        "repo_url": repo,
        "base_ref": base,
        "branch_name": "launch/r_2026-01-01T00-00-00Z_00000000/3d",
        "allowed_paths": ["content/docs.aspose.org"],
        "commit_message": "Launch 3d",
        "commit_body": "From somewhere.",
        "patch_bundle": {
            "schema_version": "1.0",
            "patches": [build_patch("patch_001", "content/docs.aspose.org/new.md", None, b"# New\n")],
        },
    }
    return {**request, **overrides}


def _client() -> CommitClient:
    return CommitClient(_FakeOutbound(), "https://commits.test", "TOKEN", delays=(0, 0, 0))  # type: ignore[arg-type]


@respx.mock
async def test_commit_request_has_idempotency_key_and_token_and_matches_the_schema() -> None:
    route = respx.post("https://commits.test/v1/commit").respond(json={"commit_sha": "a" * 40})
    request = _request("https://github.com/a/b", "b" * 40)
    assert (await _client().commit(request))["commit_sha"] == "a" * 40
    sent = route.calls[0].request
    assert sent.headers["idempotency-key"] == request["idempotency_key"]
    assert sent.headers["authorization"] == "Bearer secret"
    assert json_schemas.problems("commit_request", json.loads(sent.content)) == []


@respx.mock
async def test_failed_request_is_retried_with_the_same_idempotency_key() -> None:
    answers = [httpx.Response(503), httpx.ConnectError("no"), httpx.Response(200, json={"commit_sha": "a" * 40})]
    route = respx.post("https://commits.test/v1/commit").mock(side_effect=answers)
    await _client().commit(_request("https://github.com/a/b", "b" * 40))
    assert len({call.request.headers["idempotency-key"] for call in route.calls}) == 1
    assert route.call_count == 3


@respx.mock
@pytest.mark.parametrize(
    ("status", "code", "tries"),
    [
        (401, "AUTH_INVALID_TOKEN", 1),
        (403, "PATH_NOT_ALLOWED", 1),
        (403, "AG001_APPROVAL_REQUIRED", 1),
        (409, "BRANCH_EXISTS", 1),
        (500, "", 3),
    ],
)
async def test_every_error_is_a_commit_service_error_and_only_server_errors_are_retried(
    status: int, code: str, tries: int
) -> None:
    body = {"schema_version": "1.0", "code": code, "message": "no", "details": {}}
    route = respx.post("https://commits.test/v1/commit").respond(status, json=body)
    with pytest.raises(Fault) as caught:
        await _client().commit(_request("https://github.com/a/b", "b" * 40))
    assert (caught.value.code, caught.value.retryable) == ("COMMIT_SERVICE_ERROR", status >= 500)
    assert route.call_count == tries


@respx.mock
async def test_response_without_the_required_field_is_an_error() -> None:
    respx.post("https://commits.test/v1/open_pr").respond(json={"nothing": 1})
    with pytest.raises(Fault) as caught:
        await _client().open_pr({"idempotency_key": "x"})
    assert caught.value.code == "COMMIT_SERVICE_ERROR"


def test_idempotency_key_is_deterministic_and_matches_the_schema() -> None:
    assert idempotency_key("r", "commit") == idempotency_key("r", "commit") != idempotency_key("r", "open_pr")
    assert json_schemas.problems("open_pr_request", {"idempotency_key": idempotency_key("r", "x")})[0]["path"] == ""


@pytest.fixture
def site(tmp_path: Path) -> tuple[Path, str, Json]:
    sha = sample.create_repository(tmp_path / "roots" / "site", sample.SITE)
    limits = {
        "remotes": ["https://github.com/"],
        "local_roots": [str(tmp_path / "roots")],
        "github_clone_base": "https://github.com",
    }
    return tmp_path / "roots" / "site", sha, limits


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True).stdout.decode().strip()


def test_commit_changes_only_its_paths_and_no_working_copy(site: tuple[Path, str, Json], tmp_path: Path) -> None:
    folder, sha, limits = site
    hook = folder / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'caught'}\n")
    hook.chmod(0o755)
    request = _request(str(folder), sha)
    first = embedded.commit(request, limits, tmp_path / "service", tmp_path)
    assert embedded.commit(request, limits, tmp_path / "service", tmp_path) == first
    changed = _git(folder, "diff", "--name-only", sha, request["branch_name"])
    assert changed == "content/docs.aspose.org/new.md"
    assert _git(folder, "rev-parse", "HEAD") == sha
    assert _git(folder, "status", "--porcelain") == ""
    assert not (tmp_path / "caught").exists()


def test_commit_is_identical_after_its_record_was_lost(site: tuple[Path, str, Json], tmp_path: Path) -> None:
    folder, sha, limits = site
    request = _request(str(folder), sha)
    first = embedded.commit(request, limits, tmp_path / "service", tmp_path)
    for record in (tmp_path / "service").glob("commit-*.json"):
        record.unlink()
    assert embedded.commit(request, limits, tmp_path / "service", tmp_path)["commit_sha"] == first["commit_sha"]


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"allowed_paths": ["content/kb.aspose.org"]}, "PATH_NOT_ALLOWED"),
        ({"base_ref": "1" * 40}, "BASE_MOVED"),
        ({"surprise": 1}, "INVALID_REQUEST"),
        ({"idempotency_key": "not-a-uuid"}, "INVALID_REQUEST"),
    ],
)
def test_embedded_service_rejects_requests_with_a_specific_code(
    site: tuple[Path, str, Json], tmp_path: Path, overrides: Json, code: str
) -> None:
    folder, sha, limits = site
    with pytest.raises(Fault) as caught:
        embedded.commit(_request(str(folder), sha, **overrides), limits, tmp_path / "service", tmp_path)
    assert (caught.value.code, caught.value.details["service_code"]) == ("COMMIT_SERVICE_ERROR", code)
    assert "launch/" not in _git(folder, "branch", "--list")


def test_existing_branch_with_other_content_is_not_overwritten(site: tuple[Path, str, Json], tmp_path: Path) -> None:
    folder, sha, limits = site
    embedded.commit(_request(str(folder), sha), limits, tmp_path / "service", tmp_path)
    patches = [build_patch("patch_001", "content/docs.aspose.org/new.md", None, b"# Other\n")]
    other = _request(str(folder), sha, idempotency_key=idempotency_key("x", "y"), patch_bundle={"patches": patches})
    with pytest.raises(Fault) as caught:
        embedded.commit(other, limits, tmp_path / "service", tmp_path)
    assert caught.value.details["service_code"] == "BRANCH_EXISTS"


def test_pull_requests_are_numbered_and_idempotent(tmp_path: Path) -> None:
    request = _request("https://github.com/a/b", "b" * 40)
    pr_request = {key: request[key] for key in ("schema_version", "run_id", "repo_url", "base_ref", "branch_name")}
    pr_request |= {"idempotency_key": idempotency_key("r", "open_pr"), "pr_title": "T", "pr_body": "B"}
    first = embedded.open_pr(pr_request, tmp_path / "service")
    assert embedded.open_pr(pr_request, tmp_path / "service") == first
    second = embedded.open_pr({**pr_request, "idempotency_key": idempotency_key("s", "open_pr")}, tmp_path / "service")
    assert (first["pr_number"], second["pr_number"]) == (1, 2)
    assert first["pr_url"] == f"resource://run/{pr_request['run_id']}/pr.json"


PAGE = b"---\ntitle: A\n---\none\ntwo\n"
PATCHES = [
    ({"type": "update_file_range", "content": "2\n", "start_line": 5, "end_line": 5}, b"---\ntitle: A\n---\none\n2\n"),
    ({"type": "update_by_anchor", "content": "new\n", "anchor": "one"}, b"---\ntitle: A\n---\none\nnew\ntwo\n"),
    ({"type": "update_frontmatter_keys", "keys": {"x": 1}}, b"---\ntitle: A\nx: 1\n---\none\ntwo\n"),
    ({"type": "delete_file"}, None),
]


@pytest.mark.parametrize(("patch", "after"), PATCHES)
def test_patch_is_applied_once(tmp_path: Path, patch: Json, after: bytes | None) -> None:
    page = tmp_path / "content" / "a.md"
    page.parent.mkdir()
    page.write_bytes(PAGE)
    complete = {
        "patch_id": "patch_001",
        "path": "content/a.md",
        "content_hash": digest(after or b""),
        "expected_before_hash": digest(PAGE),
        **patch,
    }
    assert json_schemas.problems("patch_bundle", {"schema_version": "1.0", "patches": [complete]}) == []
    assert apply(complete, tmp_path, ["content"]) == "applied"
    assert (page.read_bytes() if page.exists() else None) == after
    assert apply(complete, tmp_path, ["content"]) == "already_applied"


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ({"type": "update_file_range", "content": "x", "start_line": 9, "end_line": 9}, "range_out_of_bounds"),
        ({"type": "update_by_anchor", "content": "x", "anchor": "nowhere"}, "anchor_missing"),
        ({"type": "update_frontmatter_keys", "keys": {}, "broken": True}, "key_missing"),
        (
            {"type": "update_by_anchor", "content": "x", "anchor": "one", "expected_before_hash": "0" * 64},
            "hash_mismatch",
        ),
    ],
)
def test_conflicting_patch_changes_nothing(tmp_path: Path, patch: Json, reason: str) -> None:
    before = b"no front matter\n" if patch.pop("broken", False) else PAGE
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "a.md").write_bytes(before)
    complete = {
        "patch_id": "p",
        "path": "content/a.md",
        "content_hash": "1" * 64,
        "expected_before_hash": digest(before),
        **patch,
    }
    assert apply(complete, tmp_path, ["content"]) == reason
    assert (tmp_path / "content" / "a.md").read_bytes() == before
    assert os.listdir(tmp_path / "content") == ["a.md"]
