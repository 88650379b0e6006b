"""Builds the files of a release, the same bytes on every machine: `python deploy/release/build.py OUT`.

Wheel, sdist, chart, and the release notes from CHANGELOG.md. `sbom.py` adds the list of components.
The release workflow and tests run it.
"""

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "gatehouse"


def build(out: Path, root: Path = ROOT) -> list[Path]:
    """Build everything into an empty folder and return the files."""
    out.mkdir(parents=True, exist_ok=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out.resolve())]
        subprocess.run(command, cwd=root, env=environment, check=True)
    package_chart(out, epoch)
    (out / "NOTES.md").write_text(release_notes(project_version()), "utf-8")
    return sorted(out.iterdir())


def project_version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def package_chart(out: Path, epoch: int) -> Path:
    """Pack the chart. `helm package` writes the times of the files, so that no two archives are equal."""
    version = re.search(r"^version: (\S+)$", (CHART / "Chart.yaml").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in chart_files():
            content = file.read_bytes()
            entry = tarfile.TarInfo(f"gatehouse/{file.relative_to(CHART).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            archive.addfile(entry, io.BytesIO(content))
    target = out / f"gatehouse-{version[1]}.tgz"
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return target


def chart_files() -> list[Path]:
    """The files of the chart without those that .helmignore names."""
    lines = (CHART / ".helmignore").read_text("utf-8").splitlines()
    ignored = {line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")}
    files = sorted(each for each in CHART.rglob("*") if each.is_file() and each.name != ".helmignore")
    return [each for each in files if not ignored & set(each.relative_to(CHART).parts)]


def release_notes(version: str, changelog: str | None = None) -> str:
    """Return the section of a version. Raises `ValueError` if there is none or it is empty."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8") if changelog is None else changelog
    section = rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|^\[[^\]]+\]: |\Z)"
    found = re.search(section, text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise ValueError(f"CHANGELOG.md has no section [{version}]")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    tag = os.environ.get("GITHUB_REF_NAME", "")
    if tag.startswith("v") and tag != f"v{project_version()}":
        sys.exit(f"the tag is {tag}, but pyproject.toml has the version {project_version()}")
    for built in build(Path(sys.argv[1])):
        print(built.name)
