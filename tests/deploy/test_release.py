"""The files of a release: the same bytes from two builds, complete, and with notes from the changelog."""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

from tests.deploy.chart import ROOT, helm


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "deploy" / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD, SBOM = load("build"), load("sbom")


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two builds, with another time zone and another umask."""
    folders: list[Path] = []
    for zone, mask in (("Asia/Tokyo", 0o022), ("America/Lima", 0o077)):
        folder = tmp_path_factory.mktemp("build")
        command = [sys.executable, str(ROOT / "deploy" / "release" / "build.py"), str(folder)]
        env = {**os.environ, "TZ": zone, "SOURCE_DATE_EPOCH": "1700000000", "GITHUB_REF_NAME": ""}
        subprocess.run(command, env=env, umask=mask, check=True, capture_output=True)
        folders.append(folder)
    return folders


def test_two_builds_give_the_same_bytes(builds: list[Path]) -> None:
    first, second = (
        {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()} for folder in builds
    )
    assert first == second
    version = BUILD.project_version()
    names = {f"gatehouse_mcp-{version}-py3-none-any.whl", f"gatehouse_mcp-{version}.tar.gz", "NOTES.md"}
    assert names | {f"gatehouse-{version}.tgz"} == set(first)


def test_packed_chart_is_the_chart_that_helm_reads(builds: list[Path]) -> None:
    (chart,) = builds[0].glob("gatehouse-*.tgz")
    packed, folder = helm("template", "x", str(chart)), helm("template", "x", str(BUILD.CHART))
    assert (packed.returncode, packed.stdout) == (0, folder.stdout)


def test_sdist_builds_the_same_wheel(builds: list[Path], tmp_path: Path) -> None:
    (sdist,), (wheel,) = builds[0].glob("*.tar.gz"), builds[0].glob("*.whl")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out")]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=source, env=env, check=True, capture_output=True)
    (again,) = (tmp_path / "out").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_list_of_components_is_complete_against_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    SBOM.write_sbom(Path(sys.executable), file)
    listed = json.loads(file.read_text("utf-8"))
    assert listed["bomFormat"] == "CycloneDX"
    found = {(canonicalize_name(each["name"]), each["version"]) for each in listed["components"]}
    installed = {(canonicalize_name(each.name), each.version) for each in importlib.metadata.distributions()}
    assert installed <= found


def test_notes_are_the_section_of_the_version_and_a_missing_one_is_an_error() -> None:
    text = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.0] - 2026-01-01\n\n- now\n\n## [1.1.0]\n\n- before\n"
    assert BUILD.release_notes("1.2.0", text) == "- now\n"
    for version in ("1.2", "1.3.0"):
        with pytest.raises(ValueError, match="no section"):
            BUILD.release_notes(version, text)


def test_tag_that_differs_from_the_version_stops_the_build(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "release" / "build.py"), str(tmp_path)]
    env = {**os.environ, "GITHUB_REF_NAME": "v99.0.0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "v99.0.0" in done.stderr


def test_tools_of_the_release_are_pinned_by_hash() -> None:
    text = (ROOT / "deploy" / "release" / "tools.lock").read_text("utf-8")
    assert "://" not in text
    assert {"uv", "pypi-attestations"} <= {line.partition("==")[0] for line in text.splitlines() if "==" in line}
