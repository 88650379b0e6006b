"""`python -m tests.deploy.image`: build the image, run the rendered Deployment in it, call a tool with a real client.

With buildah and podman, as root and without a daemon. Where no base image is given (`--base`), one is made from
Debian's own packages by mmdebstrap, so that no registry of images is needed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.deploy.chart import ROOT, Json, documents, one, template
from tests.deploy.pod import BIN, INSIDE, free_port

PROGRAMS: Final = "podman buildah runc mmdebstrap catatonit uidmap"
BASE: Final = "localhost/gatehouse-base:bookworm"
IMAGE: Final = "localhost/gatehouse"
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES: Final = "ca-certificates,python3,python3-venv"
NAME: Final = "gatehouse-pod"
BARE: Final = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "host")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def do(*command: str, given: str | None = None, good: bool = True) -> str:
    """What it printed. Ends everything with its words when it fails."""
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True)
    if good and done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def base(given: str | None) -> str:
    if given:
        return given
    if subprocess.run(["podman", "image", "exists", BASE]).returncode != 0:
        say(f"a base image from Debian's packages: {PACKAGES}")
        with tempfile.TemporaryDirectory() as folder:
            archive = f"{folder}/base.tar"
            do("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", archive)
            do("podman", "import", archive, BASE)
    return BASE


def build(base: str, target: str, tag: str) -> None:
    say(f"building {tag}, target {target}")
    trusted = ["-v", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
    how = ["--isolation", "chroot", "--format", "docker", "--layers", "--build-arg", f"BASE={base}", *trusted]
    do("buildah", "bud", *how, "--target", target, "-f", "deploy/docker/Dockerfile", "-t", tag, ".")


def fitted(objects: list[Json], port: int, ops: int) -> str:
    """The Deployment and its ConfigMap for `podman kube play`, which knows no probes and has no ports of its own."""
    deployment = json.loads(json.dumps(one(objects, "Deployment")))
    deployment["metadata"]["name"] = deployment["spec"]["template"]["metadata"]["name"] = NAME
    spec = deployment["spec"]["template"]["spec"]
    spec.pop("topologySpreadConstraints")
    for container in spec["containers"]:
        for key in ("ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"):
            container.pop(key, None)
        changed = {"GATEHOUSE__SERVER__PORT": str(port), "GATEHOUSE__SERVER__OPS_PORT": str(ops)}
        # Of what the kubelet would know of the pod, podman knows only its name.
        known = [each for each in container["env"] if "valueFrom" not in each and "$(" not in each["value"]]
        container["env"] = [{**each, "value": changed.get(each["name"], each["value"])} for each in known]
    return yaml.safe_dump_all([one(objects, "ConfigMap"), deployment])


@contextmanager
def playing(manifest: str) -> Iterator[str]:
    """The name of the gateway's container, while the pod runs."""
    do("podman", "kube", "play", "--network", "host", "-", given=manifest)
    try:
        yield next(name for name in do("podman", "ps", "--format", "{{.Names}}").split() if name.endswith("-gatehouse"))
    finally:
        do("podman", "kube", "down", "-", given=manifest, good=False)
        do("podman", "volume", "rm", "--force", "gatehouse-data", good=False)


def until_ready(ops: int, container: str) -> None:
    ends = time.monotonic() + 90
    while time.monotonic() < ends:
        try:
            if httpx.get(f"http://127.0.0.1:{ops}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    sys.exit(f"not ready within 90 s:\n{do('podman', 'logs', container, good=False)}")


def look_inside(container: str) -> None:
    """Its user, what it may do, and where it may write."""
    status = dict(
        line.split(":\t", 1)
        for line in do("podman", "exec", container, "cat", "/proc/1/status").splitlines()
        if ":\t" in line
    )
    facts = {
        "user": (set(status["Uid"].split()), {"10001"}),
        "group": (set(status["Gid"].split()), {"10001"}),
        "capabilities": (int(status["CapEff"], 16) | int(status["CapBnd"], 16), 0),
        "no new privileges": (status["NoNewPrivs"], "1"),
    }
    if wrong := {name: seen for name, (seen, wanted) in facts.items() if seen != wanted}:
        sys.exit(f"not as the chart wants it: {wrong}")
    for place in ("/opt/gatehouse/x", "/x", "/etc/x"):
        if subprocess.run(["podman", "exec", container, "touch", place], capture_output=True).returncode == 0:
            sys.exit(f"{place} can be written: the root is not read-only")
    say("runs as 10001, with no capability, on a read-only root")


def call(container: str, objects: list[Json], port: int) -> None:
    """With the SDK's client from here, and with the pod of `helm test` in the same image."""
    key = do("podman", "exec", container, "gatehouse", "key", "create", "--service", "image-test").strip()
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, "GATEHOUSE_TOKEN": key, "GATEHOUSE_URL": f"{url}/mcp"}
    trip = subprocess.run([str(BIN / "gatehouse"), "ping"], env=env, capture_output=True, text=True)
    if trip.returncode != 0:
        sys.exit(trip.stderr)
    say(f"a client here: {'; '.join(trip.stdout.splitlines())}")
    (tested,) = one(objects, "Pod", "gatehouse-test")["spec"]["containers"]
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(key)
        token.chmod(0o444)
        Path(folder).chmod(0o755)
        where = tested["env"][0]["value"].replace(INSIDE, url)
        mounts = ["-v", f"{folder}:/token:ro", "-e", f"GATEHOUSE_URL={where}"]
        said = do("podman", "run", "--rm", *BARE, *mounts, IMAGE, *tested["command"])
    say(f"helm test: {'; '.join(said.splitlines())}")


def health(container: str, port: int) -> None:
    (image,) = json.loads(do("podman", "image", "inspect", IMAGE))
    check: list[Any] = image["Healthcheck"]["Test"]
    do("podman", "exec", "--env", f"GATEHOUSE__SERVER__PORT={port}", container, *check[1:])
    say("its health check passes")


def full() -> None:
    for command in (["node", "--version"], ["npx", "--version"], ["uvx", "--version"], ["git", "--version"]):
        say(f"full: {' '.join(command)}: {do('podman', 'run', '--rm', *BARE, f'{IMAGE}:full', *command).strip()}")


def trial() -> None:
    given = ["--set", f"image.repository={IMAGE}", "--set", "image.tag=latest", "--set", "image.pullPolicy=Never"]
    objects = documents(template(*given, "--set", "allowedHosts[0]=127.0.0.1:*", "--set", "test.existingSecret=t"))
    port, ops = free_port(), free_port()
    with playing(fitted(objects, port, ops)) as container:
        until_ready(ops, container)
        say("the rendered Deployment is ready")
        look_inside(container)
        call(container, objects, port)
        health(container, port)
        for command in (["git", "--version"], ["hugo", "version"]):
            say(f"{' '.join(command)}: {do('podman', 'exec', container, *command).strip()[:60]}")
        do("podman", "stop", "--time", "30", container)
        (left,) = json.loads(do("podman", "inspect", container))
        if left["State"]["ExitCode"] != 0:
            sys.exit(f"it did not leave in order: {left['State']}")
        say("it leaves in order when it is told to stop")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.image", description=__doc__)
    parser.add_argument("--base", default=os.environ.get("IMAGE_BASE"), help="base image; made here unless given")
    parser.add_argument("--with-full", action="store_true", help="build the target full too")
    given = parser.parse_args()
    if missing := [program for program in ("podman", "buildah") if shutil.which(program) is None]:
        sys.exit(f"{' and '.join(missing)} not installed: apt-get install --no-install-recommends {PROGRAMS}")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        if shutil.which("runc"):
            # Limits that need no right to raise them, and no network of its own: it works in a container too.
            conf.write('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "host"\n')
            conf.write('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n')
            conf.flush()
            os.environ["CONTAINERS_CONF"] = conf.name
        standing = base(given.base)
        build(standing, "default", IMAGE)
        if given.with_full:
            build(standing, "full", f"{IMAGE}:full")
            full()
        trial()


if __name__ == "__main__":
    main()
