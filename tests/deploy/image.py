"""`python -m tests.deploy.image`: build the image, run the rendered Deployment in it, call a tool with a real client.

Uses buildah and podman, as root and without a daemon. Without `--base`, mmdebstrap creates the base image from
Debian packages, so that no image registry is needed.
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


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def run_command(*command: str, stdin: str | None = None, check: bool = True) -> str:
    """Run a command and return its output. With `check`, exit with its messages when it fails."""
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def ensure_base_image(image: str | None) -> str:
    if image:
        return image
    if subprocess.run(["podman", "image", "exists", BASE]).returncode != 0:
        log(f"creating a base image from Debian packages: {PACKAGES}")
        with tempfile.TemporaryDirectory() as folder:
            archive = f"{folder}/base.tar"
            run_command("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", archive)
            run_command("podman", "import", archive, BASE)
    return BASE


def build(base: str, target: str, tag: str) -> None:
    log(f"building {tag}, target {target}")
    trusted = ["-v", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
    options = ["--isolation", "chroot", "--format", "docker", "--layers", "--build-arg", f"BASE={base}", *trusted]
    run_command("buildah", "bud", *options, "--target", target, "-f", "deploy/docker/Dockerfile", "-t", tag, ".")


def adapt_for_podman(objects: list[Json], port: int, ops: int) -> str:
    """The Deployment and its ConfigMap for `podman kube play`, which supports neither probes nor pod ports here."""
    deployment = json.loads(json.dumps(one(objects, "Deployment")))
    deployment["metadata"]["name"] = deployment["spec"]["template"]["metadata"]["name"] = NAME
    spec = deployment["spec"]["template"]["spec"]
    spec.pop("topologySpreadConstraints")
    for container in spec["containers"]:
        for key in ("ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle"):
            container.pop(key, None)
        changed = {"GATEHOUSE__SERVER__PORT": str(port), "GATEHOUSE__SERVER__OPS_PORT": str(ops)}
        # podman does not support the downward API fields that the kubelet provides.
        known = [each for each in container["env"] if "valueFrom" not in each and "$(" not in each["value"]]
        container["env"] = [{**each, "value": changed.get(each["name"], each["value"])} for each in known]
    return yaml.safe_dump_all([one(objects, "ConfigMap"), deployment])


@contextmanager
def running_pod(manifest: str) -> Iterator[str]:
    """Run the pod until the block ends and yield the name of the gateway's container."""
    run_command("podman", "kube", "play", "--network", "host", "-", stdin=manifest)
    try:
        yield next(
            name
            for name in run_command("podman", "ps", "--format", "{{.Names}}").split()
            if name.endswith("-gatehouse")
        )
    finally:
        run_command("podman", "kube", "down", "-", stdin=manifest, check=False)
        run_command("podman", "volume", "rm", "--force", "gatehouse-data", check=False)


def wait_until_ready(ops: int, container: str) -> None:
    ends = time.monotonic() + 90
    while time.monotonic() < ends:
        try:
            if httpx.get(f"http://127.0.0.1:{ops}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    sys.exit(f"not ready within 90 s:\n{run_command('podman', 'logs', container, check=False)}")


def check_privileges(container: str) -> None:
    """Check the user, the capabilities and the read-only root of the container."""
    status = dict(
        line.split(":\t", 1)
        for line in run_command("podman", "exec", container, "cat", "/proc/1/status").splitlines()
        if ":\t" in line
    )
    facts = {
        "user": (set(status["Uid"].split()), {"10001"}),
        "group": (set(status["Gid"].split()), {"10001"}),
        "capabilities": (int(status["CapEff"], 16) | int(status["CapBnd"], 16), 0),
        "no new privileges": (status["NoNewPrivs"], "1"),
    }
    if wrong := {name: seen for name, (seen, wanted) in facts.items() if seen != wanted}:
        sys.exit(f"differs from the chart: {wrong}")
    for place in ("/opt/gatehouse/x", "/x", "/etc/x"):
        if subprocess.run(["podman", "exec", container, "touch", place], capture_output=True).returncode == 0:
            sys.exit(f"{place} is writable: the root file system is not read-only")
    log("runs as 10001, without capabilities, on a read-only root")


def check_calls(container: str, objects: list[Json], port: int) -> None:
    """Call a tool with the SDK's client on this machine, and with the pod of `helm test` in the same image."""
    key = run_command("podman", "exec", container, "gatehouse", "key", "create", "--service", "image-test").strip()
    url = f"http://127.0.0.1:{port}"
    env = {**os.environ, "GATEHOUSE_TOKEN": key, "GATEHOUSE_URL": f"{url}/mcp"}
    ping = subprocess.run([str(BIN / "gatehouse"), "ping"], env=env, capture_output=True, text=True)
    if ping.returncode != 0:
        sys.exit(ping.stderr)
    log(f"local client: {'; '.join(ping.stdout.splitlines())}")
    (tested,) = one(objects, "Pod", "gatehouse-test")["spec"]["containers"]
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(key)
        token.chmod(0o444)
        Path(folder).chmod(0o755)
        service_url = tested["env"][0]["value"].replace(INSIDE, url)
        mounts = ["-v", f"{folder}:/token:ro", "-e", f"GATEHOUSE_URL={service_url}"]
        output = run_command("podman", "run", "--rm", *BARE, *mounts, IMAGE, *tested["command"])
    log(f"helm test: {'; '.join(output.splitlines())}")


def check_health(container: str, port: int) -> None:
    (image,) = json.loads(run_command("podman", "image", "inspect", IMAGE))
    check: list[Any] = image["Healthcheck"]["Test"]
    run_command("podman", "exec", "--env", f"GATEHOUSE__SERVER__PORT={port}", container, *check[1:])
    log("the health check passes")


def check_full_image() -> None:
    for command in (["node", "--version"], ["npx", "--version"], ["uvx", "--version"], ["git", "--version"]):
        version = run_command("podman", "run", "--rm", *BARE, f"{IMAGE}:full", *command).strip()
        log(f"full: {' '.join(command)}: {version}")


def check_deployment() -> None:
    image_values = [
        "--set",
        f"image.repository={IMAGE}",
        "--set",
        "image.tag=latest",
        "--set",
        "image.pullPolicy=Never",
    ]
    objects = documents(
        template(*image_values, "--set", "allowedHosts[0]=127.0.0.1:*", "--set", "test.existingSecret=t")
    )
    port, ops = free_port(), free_port()
    with running_pod(adapt_for_podman(objects, port, ops)) as container:
        wait_until_ready(ops, container)
        log("the rendered Deployment is ready")
        check_privileges(container)
        check_calls(container, objects, port)
        check_health(container, port)
        for command in (["git", "--version"], ["hugo", "version"]):
            log(f"{' '.join(command)}: {run_command('podman', 'exec', container, *command).strip()[:60]}")
        run_command("podman", "stop", "--time", "30", container)
        (state,) = json.loads(run_command("podman", "inspect", container))
        if state["State"]["ExitCode"] != 0:
            sys.exit(f"the container did not stop cleanly: {state['State']}")
        log("the container stops cleanly on SIGTERM")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.deploy.image", description=__doc__)
    parser.add_argument("--base", default=os.environ.get("IMAGE_BASE"), help="base image; created locally by default")
    parser.add_argument("--with-full", action="store_true", help="also build the target full")
    arguments = parser.parse_args()
    if missing := [program for program in ("podman", "buildah") if shutil.which(program) is None]:
        sys.exit(f"{' and '.join(missing)} not installed: apt-get install --no-install-recommends {PROGRAMS}")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        if shutil.which("runc"):
            # Limits that need no privilege, and the host network: this also works inside a container.
            conf.write('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "host"\n')
            conf.write('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\n')
            conf.flush()
            os.environ["CONTAINERS_CONF"] = conf.name
        base_image = ensure_base_image(arguments.base)
        build(base_image, "default", IMAGE)
        if arguments.with_full:
            build(base_image, "full", f"{IMAGE}:full")
            check_full_image()
        check_deployment()


if __name__ == "__main__":
    main()
