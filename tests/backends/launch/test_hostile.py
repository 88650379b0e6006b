"""Threats 30 and 32: hostile names, paths, repositories and idempotency keys."""

import asyncio
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.launch import sample
from backends.launch.gates import hugo
from backends.launch.gates.context import GateContext
from backends.launch.paths import is_safe, is_within, resolve_allowed, safe_parts
from backends.launch.workers import git
from gateway.errors import Fault
from tests.backends.launch.worker_fixtures import run_workers

NAMES = [
    "../run_config.yaml", "..", ".", "", "/etc/passwd", "a/../../b", "..\\secret", "C:\\x", "\\\\host\\share", "a\x00b",
    "%2e%2e%2frun_config.yaml", "..%2f..%2fetc", ".hidden", "work/site/hugo.toml", "x" * 300, "．．/x", "CON:", "~/x",
]  # fmt: skip
URLS = [
    "file:///etc", "/etc", "ssh://git@github.com/a/b", "git@github.com:a/b", "ext::sh -c touch% /tmp/x",
    "https://evil.example/a/b", "https://github.com@evil.example/a", "http://127.0.0.1/a", "--upload-pack=touch /tmp/x",
    "https://github.com/../../a",
]  # fmt: skip


def _git(folder: Path, *arguments: str, data: bytes | None = None) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x", *arguments],
        cwd=folder,
        input=data,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


async def test_threat_30_no_artifact_name_or_run_id_accesses_files_outside_the_run(launch: Any, tmp_path: Path) -> None:
    async with launch() as launcher:
        run_id = await launcher.start(github_repo_url=str(tmp_path / "nowhere"))
        for name in NAMES:
            answer = await launcher.call("get_artifact", run_id=run_id, artifact_name=name)
            assert answer["error"]["code"] == "INVALID_INPUT", name
        for hostile in [*NAMES, f"../runs/{run_id}", f"{run_id}/../{run_id}", f"{run_id}\n"]:
            if not hostile or len(hostile) > 200:
                continue
            answer = await launcher.call("get_status", run_id=hostile)
            assert answer["error"]["code"] == "RUN_NOT_FOUND", hostile
            assert "run_id" not in answer
        secret = tmp_path / "secret.json"
        secret.write_text("{}")
        (launcher.folder(run_id) / "artifacts" / "link.json").symlink_to(secret)
        answer = await launcher.call("get_artifact", run_id=run_id, artifact_name="link.json")
        assert answer["error"]["code"] == "INVALID_INPUT"


@given(st.text(max_size=80))
def test_threat_30_path_is_rejected_or_stays_below_its_root(path: str) -> None:
    root = Path("/root-of-the-run")
    try:
        parts = safe_parts(path)
    except ValueError:
        assert not is_safe(path)
    else:
        target = root.joinpath(*parts)
        assert target.is_relative_to(root)
        assert ".." not in target.parts
        assert target != root


def test_threat_30_writes_outside_allowed_paths_or_through_symlinks_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "site" / "content").mkdir(parents=True)
    (tmp_path / "site" / "content" / "link").symlink_to(tmp_path)
    assert resolve_allowed(tmp_path / "site", "content/a.md", ["content"]) == tmp_path / "site/content/a.md"
    for path in ("content2/a.md", "../a.md", "content/../../a.md", "content/link/a.md", "/content/a.md", "content\\a"):
        with pytest.raises(Fault) as refused:
            resolve_allowed(tmp_path / "site", path, ["content"])
        assert refused.value.code == "ALLOWED_PATHS_VIOLATION", path
    assert not is_within("contents/a", ["content"])


@pytest.mark.parametrize("url", URLS)
def test_threat_30_only_repositories_allowed_by_the_operator_are_cloned(url: str, tmp_path: Path) -> None:
    limits = {
        "remotes": ["https://github.com/"],
        "local_roots": [str(tmp_path)],
        "github_clone_base": "https://github.com",
    }
    with pytest.raises(Fault):
        git.mirror(url, tmp_path / "copy.git", limits)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of the workers on a hostile repository: symlinks, hooks, filters, oversized files and unsafe names."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "outside").write_text("untouched")
    product, _ = sample.create_repositories(folder / "repositories")
    trap = f"#!/bin/sh\necho caught >> {folder / 'caught'}\n"
    (product / "escape").symlink_to(folder / "outside")
    (product / "docs").mkdir()
    (product / "docs" / "passwd.md").symlink_to("/etc/passwd")
    (product / "big.bin").write_bytes(b"\0" * 3_000_000)
    (product / "setup.py").write_text(f"open({str(folder / 'caught')!r}, 'w').write('setup')\n")
    (product / "Makefile").write_text(f"all:\n\ttouch {folder / 'caught'}\n")
    (product / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (product / "README.md").write_text(
        sample.PRODUCT["README.md"].replace(
            "- Needs no", '- {{< readfile "/etc/passwd" >}} <script>x</script>\n- Needs no'
        )
        + "\n## Usage\n\n```python\n{{% evil %}}\n```\n"
    )
    _git(product, "config", "filter.evil.smudge", f"touch {folder / 'caught'}")
    _git(product, "config", "uploadpack.packObjectsHook", f"touch {folder / 'caught'}")
    _git(product, "add", "--all")
    _git(product, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    _git(product, "commit", "--quiet", "--message", "Traps")
    for hook in ("post-checkout", "post-merge", "pre-receive", "reference-transaction", "post-index-change"):
        path = product / ".git" / "hooks" / hook
        path.write_text(trap)
        path.chmod(0o755)
    # A tree that git itself would not create: a file below `..`.
    blob = _git(product, "hash-object", "-w", "--stdin", data=b"climbed")
    inner = _git(product, "mktree", data=f"100644 blob {blob}\tclimbed.md\n".encode())
    tree = _git(product, "ls-tree", "HEAD") + f"\n040000 tree {inner}\t..\n"
    climbing = _git(product, "mktree", data=tree.encode())
    sha = _git(product, "commit-tree", climbing, "-p", "HEAD", "-m", "Climbs")
    (product / ".git" / "hooks" / "reference-transaction").unlink()
    _git(product, "update-ref", "refs/heads/main", sha)
    (folder / "caught").unlink(missing_ok=True)
    return folder, run_workers(folder, required_sections=["docs"])


def test_threat_30_no_code_of_a_cloned_repository_is_run(hostile: Any) -> None:
    folder, context = hostile
    list(hugo.check_build(GateContext(context)))
    assert not (folder / "caught").exists()


def test_threat_30_symlinks_submodules_unsafe_names_and_huge_files_are_excluded(hostile: Any) -> None:
    folder, context = hostile
    left_out = {each["path"]: each["reason"] for each in context.read("repo_inventory.json")["left_out"]}
    assert left_out == {
        "../climbed.md": "unsafe_name",
        "big.bin": "too_large",
        "docs/passwd.md": "symlink",
        "escape": "symlink",
        "module": "submodule",
    }
    assert (folder / "outside").read_text() == "untouched"
    assert not (context.folder / "work" / "climbed.md").exists()
    assert not [path for path in context.folder.rglob("*") if path.is_symlink()]


def test_threat_30_markup_of_the_repository_is_removed_from_pages(hostile: Any) -> None:
    _, context = hostile
    pages = "".join(path.read_text() for path in (context.folder / "drafts").rglob("*.md"))
    assert "{{" not in pages
    assert "<script" not in pages
    assert "root:" not in pages


def test_large_repository_is_read_up_to_the_byte_limit(tmp_path: Path) -> None:
    sample.create_repositories(tmp_path / "repositories")
    files = {**sample.PRODUCT, **{f"data/{number}.txt": "x" * 5000 for number in range(30)}}
    sample.create_repository(tmp_path / "repositories" / "a" / "large", files)
    options = {"max_repo_bytes": 50_000, "max_file_bytes": 40_000}
    context = run_workers(tmp_path, product="https://github.com/a/large", options=options, required_sections=["docs"])
    written = sum(path.stat().st_size for path in context.repo.rglob("*") if path.is_file())
    assert written <= 50_000
    reasons = {each["reason"] for each in context.read("repo_inventory.json")["left_out"]}
    assert reasons == {"limit"}


async def test_threat_30_oversized_repository_is_not_fetched(launch: Any, repositories: Any) -> None:
    huge = repositories.root / "a" / "huge"
    sample.create_repository(huge, {"README.md": "# Huge\n"})
    (huge / "noise.bin").write_bytes(random.Random(1).randbytes(6_000_000))
    _git(huge, "add", "--all")
    _git(huge, "commit", "--quiet", "--message", "Noise")
    async with launch(max_repo_bytes=1_000_000) as launcher:
        run_id = await launcher.start(github_repo_url="https://github.com/a/huge", github_ref="0" * 40)
        await launcher.until(run_id, "FAILED")
        written = sum(path.stat().st_size for path in launcher.folder(run_id).rglob("*") if path.is_file())
        assert written < 5_000_000


async def test_threat_32_one_hundred_starts_with_one_key_create_one_run(launch: Any, tmp_path: Path) -> None:
    async with launch() as launcher:
        config = launcher.repositories.config(github_repo_url=str(tmp_path / "nowhere"))
        starts = [launcher.call("start_run", run_config=config, idempotency_key="same") for _ in range(100)]
        answers = await asyncio.gather(*starts)
        assert {answer["ok"] for answer in answers} == {True}
        assert len({answer["run_id"] for answer in answers}) == 1
        assert len((await launcher.call("list_runs"))["runs"]) == 1
        assert len(list(launcher.folder(answers[0]["run_id"]).parent.iterdir())) == 1


async def test_threat_32_same_key_of_two_tenants_creates_two_isolated_runs(launch: Any, tmp_path: Path) -> None:
    settings = {"tenants": {"default": {}, "other": {}}}
    async with (
        launch(settings=settings) as launcher,
        launcher.as_(await launcher.gateway.new_key("other", "carol")) as other,
    ):
        config = launcher.repositories.config(github_repo_url=str(tmp_path / "nowhere"))
        own_run = (await launcher.call("start_run", run_config=config, idempotency_key="same"))["run_id"]
        other_run = (await other.call("start_run", run_config=config, idempotency_key="same"))["run_id"]
        assert own_run != other_run
        assert [run["run_id"] for run in (await other.call("list_runs"))["runs"]] == [other_run]
        for tool in ("get_status", "validate", "fix_next", "resume", "cancel", "open_pr", "get_run_telemetry"):
            assert (await other.call(tool, run_id=own_run))["error"]["code"] == "RUN_NOT_FOUND", tool
        answer = await other.call("get_artifact", run_id=own_run, artifact_name="run_config.yaml")
        assert answer["error"]["code"] == "RUN_NOT_FOUND"
        read = await other.gateway.post("resources/read", {"uri": f"resource://run/{own_run}/snapshot.json"})
        assert "error" in read.json()


async def test_threat_32_key_reused_with_another_config_is_rejected(launch: Any, tmp_path: Path) -> None:
    async with launch() as launcher:
        config = launcher.repositories.config(github_repo_url=str(tmp_path / "nowhere"))
        first = await launcher.call("start_run", run_config=config, idempotency_key="k")
        reordered = dict(reversed(config.items()))
        assert (await launcher.call("start_run", run_config=reordered, idempotency_key="k"))["run_id"] == first[
            "run_id"
        ]
        changed = {**config, "max_fix_attempts": 9}
        refused = await launcher.call("start_run", run_config=changed, idempotency_key="k")
        assert refused["error"]["code"] == "INVALID_INPUT"
        assert (await launcher.call("start_run", run_config=changed))["run_id"] != first["run_id"]
