"""Threat 40, the supply chain: packages of the image are pinned by hash, and the wheel build is reproducible.

Also checks the Dockerfile and the compose file with their linters.
"""

import hashlib
import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import validator_for
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.chart import ROOT
from tests.prerequisites import skip_or_fail

DOCKER = ROOT / "deploy" / "docker"
LOCKS = sorted(DOCKER.glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ENTRY = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>\S+)(?P<marker> ; [^\\]+)? \\$")


def locked(text: str) -> dict[str, str]:
    """The version of each package. Fails on an entry that is not pinned or has no hashes."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        first, *hashes = entry.splitlines()
        named = ENTRY.match(first)
        assert named, f"not pinned: {first}"
        assert hashes, f"no hash: {first}"
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes), entry
        found[canonicalize_name(named["name"])] = named["version"]
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_threat_40_every_package_of_the_image_is_pinned_by_hash_and_not_by_url(lock: Path) -> None:
    text = lock.read_text("utf-8")
    assert locked(text)
    assert "://" not in text


def test_threat_40_incomplete_lock_entry_is_detected() -> None:
    good = f"a==1 \\\n    --hash=sha256:{'0' * 64}\n"
    assert locked(good) == {"a": "1"}
    for bad in ("a>=1", "a==1", good + "b==2", good.replace("0" * 64, "0" * 63), "-i x\n" + good):
        with pytest.raises(AssertionError):
            locked(bad)


NOT_IN_IMAGE = {"semantic", "semantic-light"}
"""The embedders weigh more than the rest of the image; the `IMAGE_EXTRAS` of the Makefile leave them out."""


def test_threat_40_lock_satisfies_the_project_dependencies() -> None:
    versions = locked((DOCKER / "requirements.lock").read_text("utf-8"))
    requirements = [*PROJECT["project"]["dependencies"]]
    for name, extra in PROJECT["project"]["optional-dependencies"].items():
        if name not in NOT_IN_IMAGE:
            requirements += extra
    for requirement in map(Requirement, requirements):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in the lock: make lock"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: make lock"


def test_threat_40_image_installs_only_pinned_packages() -> None:
    text = (DOCKER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install ([^&\n]+)", text)
    assert len(installs) == len(LOCKS) + 1
    pinned = [each for each in installs if "--require-hashes" in each and "--only-binary :all:" in each]
    own = [each for each in installs if "--no-index" in each and "--no-deps" in each]
    assert (len(pinned), len(own)) == (len(LOCKS), 1)
    assert {re.search(r"-r (\S+)", each)[1] for each in pinned} == {lock.name for lock in LOCKS}  # type: ignore[index]
    assert not re.search(r"\b(curl|wget|npm|git clone|ADD)\b", text)


def test_threat_40_wheel_build_is_reproducible(tmp_path: Path) -> None:
    digests: set[str] = set()
    for turn in range(2):
        source = tmp_path / f"elsewhere-{turn}"
        source.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE", "gatehouse_mcp.py"):
            shutil.copyfile(ROOT / name, source / name)
        for name in ("gateway", "backends", "policies"):
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=_copy
            )
        # Simulate a machine without network access: no index and an unreachable proxy.
        env = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": "0", "https_proxy": "http://127.0.0.1:1"}
        env["TZ"], env["HOME"] = ("Asia/Tokyo", "America/Lima")[turn], str(tmp_path)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / f"dist-{turn}")]
        subprocess.run(command, cwd=source, env=env, check=True, capture_output=True, umask=(0o022, 0o077)[turn])
        (wheel,) = (tmp_path / f"dist-{turn}").glob("*.whl")
        digests.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(digests) == 1


def _copy(source: str, target: str) -> str:
    """Copy only the content; modification times differ."""
    return shutil.copyfile(source, target)


# ---- Dockerfile and compose file ----


def _lint(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = Path(sys.prefix) / "bin" / program
    if not path.exists():
        skip_or_fail(f"{program} is not installed")
    return subprocess.run([str(path), *arguments], capture_output=True, text=True, timeout=60)


def test_hadolint_passes_for_the_dockerfile(tmp_path: Path) -> None:
    done = _lint("hadolint", str(DOCKER / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install git\n")
    assert _lint("hadolint", str(tmp_path / "Dockerfile")).returncode != 0


def test_compose_file_is_valid() -> None:
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text("utf-8"))
    check = validator_for(schema)(schema)
    compose: Any = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
    assert list(check.iter_errors(compose)) == []
    compose["services"]["gatehouse"]["imag"] = "x"
    assert list(check.iter_errors(compose))


def test_compose_file_runs_the_gateway_unprivileged_and_publishes_on_loopback_only() -> None:
    compose: Any = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
    assert set(compose["services"]) == {"gatehouse", "postgres", "valkey", "collector"}
    gateway = compose["services"]["gatehouse"]
    assert (gateway["read_only"], gateway["cap_drop"]) == (True, ["ALL"])
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert not any(":?" not in value for value in service.get("environment", {}).values() if "PASSWORD" in value)


def test_image_runs_as_non_root_and_has_a_health_check() -> None:
    text = (DOCKER / "Dockerfile").read_text("utf-8")
    final = text.partition(" AS gatehouse\n")[2].partition("\nFROM ")[0]
    assert "USER 10001:10001" in final
    assert "HEALTHCHECK" in final
    assert "ARG BASE=" in text
    assert text.rstrip().endswith("FROM gatehouse AS default")


def test_settings_of_the_compose_file_accept_all_backends(tmp_path: Path) -> None:
    compose: Any = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
    environment: dict[str, str] = compose["services"]["gatehouse"]["environment"]
    # The other services do not run here: the test only checks that the settings are consistent.
    nowhere = {
        name: re.sub(r"(postgres|valkey|collector):\d+", "127.0.0.1:1", text) for name, text in environment.items()
    }
    nowhere["GATEHOUSE__DATABASE__URL"] = "postgresql://gatehouse@127.0.0.1:1/gatehouse"
    env = {name: value for name, value in os.environ.items() if not name.startswith("GATEHOUSE")}
    command = [sys.executable, "-m", "gateway", "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env={**env, **nowhere}, capture_output=True, text=True, timeout=120)
    found = {each["part"]: each["state"] for each in json.loads(done.stdout)}
    assert found["settings"] == "good"
    backends = {part: state for part, state in found.items() if part.startswith("backends.")}
    assert set(backends.values()) == {"good"}
    assert "backends.launch" in backends
