"""The built wheel: its name and metadata, what it installs, and the refusal to run beside another `gateway`."""

import email
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.repo.documents import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, installed from the wheel; its dependencies come from the environment of the tests."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=False, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    (dependencies,) = (Path(each) for each in sys.path if each.endswith("site-packages") and sys.prefix in each)
    for each in dependencies.iterdir():
        if each.suffix != ".pth" and not (site / each.name).exists() and not each.name.startswith("gatehouse"):
            (site / each.name).symlink_to(each)
    script = home / "bin" / "gatehouse"
    script.write_text(f"#!{home}/bin/python\nfrom gatehouse_mcp import main\nmain()\n")
    script.chmod(0o755)
    return script


def run(command: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(command), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=command.parent,
        env={**clean, **environment},
    )


def test_wheel_is_named_gatehouse_mcp_and_its_metadata_names_the_packages_it_installs(wheel: Path) -> None:
    assert wheel.name.startswith("gatehouse_mcp-")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        (scripts,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        described = email.message_from_bytes(packed.read(metadata))
        assert packed.read(scripts).decode().split() == ["[console_scripts]", "gatehouse", "=", "gatehouse_mcp:main"]
    assert described["Name"] == "gatehouse-mcp"
    installed = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert installed == {"gatehouse_mcp.py", "gateway", "backends"}
    assert {"gateway", "backends"} <= set(described["Summary"].replace(".", " ").split())
    assert any(name.startswith("gateway/policy/shipped/") for name in names)


def test_installed_command_prints_the_version_of_the_distribution(command: Path) -> None:
    done = run(command, "version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gatehouse 0.1.0 (MCP ")


@pytest.mark.parametrize("package", ["gateway", "backends"])
@pytest.mark.parametrize("as_module", [True, False])
def test_command_refuses_to_run_if_another_package_hides_one_of_its_own(
    command: Path, tmp_path: Path, package: str, as_module: bool
) -> None:
    hiding = tmp_path / (f"{package}.py" if as_module else f"{package}/__init__.py")
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("raise SystemExit('the other package was imported')\n")
    done = run(command, "version", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gatehouse: the package {package} of gatehouse-mcp is in ")
    assert str(hiding if as_module else hiding.parent) in line
    assert "environment of its own" in line
