"""The site that the Helm chart renders for several pods, with its commands and settings, real PostgreSQL and Valkey."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.chart import documents, one, template, values
from tests.deploy.pod import Pod
from tests.faults.replicas import GENEROUS, PLAIN, Replica, Site
from tests.servers import Valkey, postgres_server


@contextmanager
def chart_site(folder: Path) -> Iterator[Site]:
    """The number of pods in `ha-values.yaml`, each with its own volumes, after the migration Job."""
    valkey = Valkey()
    try:
        with postgres_server() as database:
            secrets = {
                "gatehouse-secrets": {name: os.urandom(32) for name in ("pepper", "seal", "signing")},
                "gatehouse-database": {"uri": database.encode()},
                "gatehouse-redis": {"url": valkey.url.encode()},
            }
            yield _deploy(folder, secrets)
    finally:
        valkey.stop()


def _deploy(folder: Path, secrets: dict[str, dict[str, bytes]]) -> Site:
    config = json.dumps({"backends": PLAIN, **GENEROUS})
    arguments = ["-f", str(values("ha")), "--set-json", f"config={config}", "--set", "allowedHosts[0]=127.0.0.1:*"]
    objects = documents(template(*arguments))
    job = Pod(folder / "job", one(objects, "Job", "gatehouse-migrate")["spec"]["template"]["spec"], objects, secrets)
    migrated = job.run("migrate")
    assert migrated.returncode == 0, migrated.stderr
    deployment = one(objects, "Deployment")["spec"]
    pods = [
        Pod(folder / f"pod-{number}", deployment["template"]["spec"], objects, secrets)
        for number in range(deployment["replicas"])
    ]
    created = pods[0].run("gatehouse", "gatehouse", "key", "create", "--tenant", "default", "--subject", "load")
    assert created.returncode == 0, created.stderr

    def make_replica(pod: Pod) -> Replica:
        def popen() -> "subprocess.Popen[bytes]":
            return pod.start("gatehouse")

        return Replica(pod.port, popen)

    return Site([make_replica(pod) for pod in pods], created.stdout.strip())
