"""The packages of the corpus, and how the sources of each are fetched with its registry's own client."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 600


@dataclass(frozen=True)
class Package:
    platform: str
    name: str
    version: str
    module: str = ""
    """Import name of a Python package, if it differs."""

    @property
    def slug(self) -> str:
        return self.name.rpartition("/")[2].rpartition(":")[2].lower().replace(".", "-").lstrip("@")


PACKAGES = [
    Package("python", "click", "8.1.7"),
    Package("python", "requests", "2.32.3"),
    Package("python", "attrs", "24.2.0", "attr"),
    Package("python", "tabulate", "0.9.0"),
    Package("python", "humanize", "4.10.0"),
    Package("python", "itsdangerous", "2.2.0"),
    Package("typescript", "zod", "3.23.8"),
    Package("typescript", "date-fns", "3.6.0"),
    Package("typescript", "commander", "12.1.0"),
    Package("typescript", "nanoid", "5.0.7"),
    Package("typescript", "p-limit", "6.1.0"),
    Package("go", "github.com/google/uuid", "v1.6.0"),
    Package("go", "github.com/spf13/pflag", "v1.0.5"),
    Package("go", "github.com/gorilla/mux", "v1.8.1"),
    Package("go", "github.com/pkg/errors", "v0.9.1"),
    Package("java", "com.google.code.gson:gson", "2.11.0"),
    Package("java", "org.apache.commons:commons-csv", "1.11.0"),
    Package("java", "org.jsoup:jsoup", "1.18.1"),
    Package("rust", "itoa", "1.0.11"),
    Package("rust", "semver", "1.0.23"),
    Package("rust", "either", "1.13.0"),
    Package("rust", "bitflags", "2.6.0"),
]


def fetch(package: Package, folder: Path) -> Path:
    """Return the folder with the package's sources, fetched once."""
    target = folder / f"{package.platform}-{package.slug}-{package.version}"
    if not target.exists():
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _FETCHERS[package.platform](package, partial)
        partial.rename(target)
    return target


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def _python(package: Package, folder: Path) -> None:
    spec = f"{package.name}=={package.version}"
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", ".", spec, cwd=folder)
    _unpack(next(folder.glob("*.tar.gz")), folder)


def _npm(package: Package, folder: Path) -> None:
    run("npm", "pack", "--silent", f"{package.name}@{package.version}", cwd=folder)
    _unpack(next(folder.glob("*.tgz")), folder)


def _go(package: Package, folder: Path) -> None:
    (folder / "go.mod").write_text("module corpus\n")
    answer = json.loads(run("go", "mod", "download", "-json", f"{package.name}@{package.version}", cwd=folder))
    (folder / "go.mod").unlink()
    shutil.copytree(answer["Dir"], folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _java(package: Package, folder: Path) -> None:
    group, artifact = package.name.split(":")
    for suffix in (":jar:sources", ":jar", ":pom"):
        coordinates = f"{group}:{artifact}:{package.version}{suffix}"
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", "-DoutputDirectory=.", cwd=folder)
    with zipfile.ZipFile(next(folder.glob("*-sources.jar"))) as archive:
        archive.extractall(folder / "src/main/java")
    next(folder.glob("*.pom")).rename(folder / "pom.xml")
    next(folder.glob("*-sources.jar")).unlink()


def _rust(package: Package, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src/lib.rs").write_text("")
    manifest = (
        f'[package]\nname = "corpus"\nversion = "0.0.0"\n\n[dependencies]\n{package.name} = "={package.version}"\n'
    )
    (folder / "Cargo.toml").write_text(manifest)
    run("cargo", "vendor", "-q", "vendor", cwd=folder)
    found = folder / "vendor" / package.name
    shutil.copytree(found, folder.with_name(folder.name + ".crate"))
    shutil.rmtree(folder)
    folder.with_name(folder.name + ".crate").rename(folder)


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked", filter="data")
    inner = next((folder / "unpacked").iterdir())
    for child in inner.iterdir():
        child.rename(folder / child.name)
    shutil.rmtree(folder / "unpacked")
    archive.unlink()


_FETCHERS = {"python": _python, "typescript": _npm, "javascript": _npm, "go": _go, "java": _java, "rust": _rust}
