"""Gets the two programs: etcd from the Debian package, kube-apiserver built from its Go modules (about ten minutes)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.peers.kubernetes.server import PROGRAMS, VERSION

_VERSION_PACKAGE = "k8s.io/component-base/version"


def get_etcd() -> None:
    if (found := shutil.which("etcd")) is not None:
        shutil.copy(found, PROGRAMS / "etcd")
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", "etcd-server"], cwd=folder, check=True)
        (package,) = Path(folder).glob("etcd-server_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), folder], check=True)
        shutil.copy(Path(folder) / "usr" / "bin" / "etcd", PROGRAMS / "etcd")


def build_api_server() -> None:
    major, minor, _ = VERSION.split(".")
    values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s -w", *(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in values.items())])
    output = str(PROGRAMS / "kube-apiserver")
    subprocess.run(
        ["go", "build", "-trimpath", "-ldflags", flags, "-o", output, "."], cwd=Path(__file__).parent, check=True
    )


def main() -> None:
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    if not (PROGRAMS / "etcd").exists():
        get_etcd()
    if not (PROGRAMS / "kube-apiserver").exists():
        build_api_server()
    print(f"etcd and kube-apiserver {VERSION} are in {PROGRAMS}", file=sys.stderr)


main()
