"""Starts the rendered pods with their commands, settings and volumes, and calls them as `helm test` does."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.deploy.chart import Json, documents, one, template, values
from tests.deploy.kubelet import mount
from tests.deploy.pod import Pod, stop
from tests.flows.process import modern, modern_headers, until

# The name of the Service does not resolve here, so the tests call the pods by address.
# Without a load balancer, no drain grace is needed.
HERE = ["--set", "allowedHosts[0]=127.0.0.1:*", "--set", "drain.graceSeconds=0"]
CORE = ["--set-json", 'config.backends={"core":{"module":"backends.core"}}']


@contextmanager
def serving(pod: Pod) -> Iterator[Pod]:
    process = pod.start("gatehouse")
    try:
        until(lambda: _ready(pod, process), "readiness on the ops port", 120)
        yield pod
    finally:
        stop(process)


def _ready(pod: Pod, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, (pod.folder / "gatehouse.log").read_text() + (
        pod.folder / "gatehouse.out"
    ).read_text()
    try:
        return httpx.get(f"http://127.0.0.1:{pod.ops}/readyz", trust_env=False, verify=False).status_code == 200
    except httpx.TransportError:
        return False


def deployed(folder: Path, objects: list[Json], **more: object) -> Pod:
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    return Pod(folder, spec, objects, claims=folder.parent / "claims", **more)  # type: ignore[arg-type]


def round_trip(folder: Path, objects: list[Json], gateway: Pod, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the pod of `helm test`, after its init containers."""
    spec = one(objects, "Pod", "gatehouse-test")["spec"]
    pod = Pod(folder, spec, objects, claims=folder.parent / "claims", gateway=gateway.url, **more)  # type: ignore[arg-type]
    for each in spec.get("initContainers", ()):
        done = pod.run(each["name"])
        assert done.returncode == 0, done.stderr
    return pod.run("round-trip")


def test_one_pod_serves_both_eras_and_reloads_its_settings_secret(tmp_path: Path) -> None:
    arguments = [*HERE, "--set", "existingConfig.secret=settings", "--set", "existingConfig.key=s.yaml"]
    objects, without = (
        documents(template(*arguments, "--set", "test.existingSecret=key")),
        documents(template(*arguments)),
    )
    settings = {"settings": {"s.yaml": b"backends: {core: {module: backends.core}}"}}
    with serving(deployed(tmp_path / "first", objects, secrets=settings)) as pod:
        output = (pod.folder / "gatehouse.out").read_text()
        assert "gth_" not in output  # everyone who reads the pod's log could use a key in it
        created = pod.run("gatehouse", "gatehouse", "key", "create", "--service", "helm-test")
        assert created.returncode == 0, created.stderr
        key = {"key": {"token": created.stdout.encode()}}
        done = round_trip(tmp_path / "test", objects, pod, secrets=key)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ok  2026-07-28  1 tool, called core_ping" in done.stdout
        assert "ok  2025-11-25  1 tool, called core_ping" in done.stdout
        refused = round_trip(tmp_path / "none", without, pod)
        assert refused.returncode == 1
        assert "create secret generic gatehouse-test" in refused.stdout
        foreign = httpx.post(f"{pod.url}/mcp", headers={"host": "evil.example.org"}, trust_env=False, verify=False)
        assert foreign.status_code == 421
        metrics = httpx.get(f"http://127.0.0.1:{pod.ops}/metrics", trust_env=False, verify=False)
        assert "gatehouse_calls_running" in metrics.text  # the metric for the autoscaler
        for path in ("/metrics", "/api/v1/usage", "/console"):  # served on the ops port only
            assert httpx.get(f"{pod.url}{path}", trust_env=False, verify=False).status_code == 404
        unknown = httpx.get(f"http://127.0.0.1:{pod.ops}/api/v1/usage", trust_env=False, verify=False)
        assert unknown.status_code == 401
        # The kubelet replaces the mounted files; the pod is not restarted.
        more = b"backends: {core: {module: backends.core}, project: {module: 'backends.core:project'}}"
        mount(pod.folder / "root" / "etc" / "gatehouse", {"gatehouse.yaml": more})
        until(
            lambda: "project_workspace_stats" in _request(pod, created.stdout.strip(), "tools/list"), "the new backend"
        )
    claim = tmp_path / "claims" / "gatehouse-data"
    assert {"gatehouse.db", "secrets"} <= {path.name for path in claim.iterdir()}


def _request(pod: Pod, key: str, method: str) -> str:
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    sent = {**headers, **modern_headers(method)}
    return httpx.post(
        f"{pod.url}/mcp", json=modern(method), headers=sent, timeout=30, trust_env=False, verify=False
    ).text


def test_policies_from_values_are_merged_with_the_shipped_ones(tmp_path: Path) -> None:
    objects = documents(template("-f", str(values("external-idp"))))
    pod = deployed(tmp_path / "pod", objects, secrets={"gatehouse-backends": {"GITHUB_TOKEN": b"x"}})
    why = pod.run("gatehouse", "gatehouse", "policy", "test")
    # Every shipped policy has a test row. The additional one has none: the mistake shows that it was compiled.
    assert "ours.maintainers" in why.stdout + why.stderr
    assert "1 mistake" in why.stdout + why.stderr


def test_several_pods_on_postgresql_and_redis_share_state_in_both_eras(
    tmp_path: Path, postgres_url: str, valkey_url: str, prefix: str
) -> None:
    pod_secrets = {
        "gatehouse-secrets": {name: os.urandom(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"uri": postgres_url.encode()},
        "gatehouse-redis": {"url": valkey_url.encode()},
    }
    more = ["--set", f"config.bus.prefix={prefix}", "--set", "files.enabled=true"]
    more += ["--set-string", "policies.files.org/zz-ours\\.cedar=// nothing more"]
    objects = documents(template("-f", str(values("ha")), *HERE, *CORE, *more))
    job = Pod(
        tmp_path / "job", one(objects, "Job", "gatehouse-migrate")["spec"]["template"]["spec"], objects, pod_secrets
    )
    done = job.run("migrate")
    assert done.returncode == 0, done.stderr
    assert "gateway: " in done.stdout
    # The Job does not create a folder that it does not mount: its root is read-only.
    assert not Path("/var/lib/gatehouse-files").exists()
    with ExitStack() as stack:
        pods = [deployed(tmp_path / name, objects, secrets=pod_secrets) for name in ("one", "two")]
        processes = [pod.start("gatehouse") for pod in pods]
        for process in processes:
            stack.callback(stop, process)
        for pod, process in zip(pods, processes, strict=True):
            until(lambda pod=pod, process=process: _ready(pod, process), "readiness", 120)
        # The test pod creates a key, which is valid for both pods.
        done = round_trip(tmp_path / "test", objects, pods[1], secrets=pod_secrets)
        assert done.returncode == 0, done.stdout + done.stderr
        key = (tmp_path / "test" / "root" / "token" / "token").read_text().strip()
        _check_shared_session(pods, key)


def _check_shared_session(pods: list[Pod], key: str) -> None:
    """A session opened at one pod works at the other, and so does a stateless call."""
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with httpx.Client(verify=False, headers=headers, timeout=30, trust_env=False) as http:
        begun = http.post(f"{pods[0].url}/mcp", json=message)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        call: Json = {"name": "core_ping", "arguments": {}}
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        for pod in reversed(pods):
            answer = http.post(f"{pod.url}/mcp", json=request, headers=session)
            assert '"ok":true' in answer.text.replace(" ", ""), answer.text
            answer = http.post(
                f"{pod.url}/mcp", json=modern("tools/call", call), headers=modern_headers("tools/call", call)
            )
            assert "serverTime" in answer.text, answer.text


def test_settings_accepted_by_the_chart_pass_gatehouse_check(tmp_path: Path) -> None:
    """`gatehouse check` validates settings, modules and policies as a start does."""
    pod_secrets = {
        "gatehouse-secrets": {name: os.urandom(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"url": b"postgresql://x@127.0.0.1:1/x"},
        "gatehouse-redis": {"url": b"redis://127.0.0.1:1/0"},
    }
    for case in ("gateway-api", "restricted-egress"):
        pod = deployed(tmp_path / case, documents(template("-f", str(values(case)))), secrets=pod_secrets)
        checked = pod.run("gatehouse", "gatehouse", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_pod_with_world_readable_secrets_does_not_start(tmp_path: Path, postgres_url: str) -> None:
    pod_secrets = {
        "gatehouse-secrets": {name: secrets.token_bytes(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"uri": postgres_url.encode()},
        "gatehouse-redis": {"url": b"redis://127.0.0.1:1/0"},
    }
    objects = documents(template("-f", str(values("ha")), *HERE, *CORE))
    pod = deployed(tmp_path / "pod", objects, secrets=pod_secrets)
    volume = next(each for each in pod.spec["volumes"] if each["name"] == "secrets")
    volume["secret"]["defaultMode"] = 0o444
    done = pod.run("gatehouse", "gatehouse", "key", "create", "--subject", "alice")
    assert done.returncode != 0
    assert "may be read by others" in done.stderr
