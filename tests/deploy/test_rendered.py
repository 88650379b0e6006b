"""What the chart renders, started: the pods' own commands, settings and volumes, called as `helm test` does."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from tests.deploy.chart import Json, documents, one, template, values
from tests.deploy.kubelet import mount
from tests.deploy.pod import Pod, stopped
from tests.flows.process import modern, modern_headers, until

# The name of the Service leads nowhere here, so the pods are called by address.
# And nobody waits for balancers that there are not.
HERE = ["--set", "allowedHosts[0]=127.0.0.1:*", "--set", "drain.graceSeconds=0"]
CORE = ["--set-json", 'config.backends={"core":{"module":"backends.core"}}']


@contextmanager
def serving(pod: Pod) -> Iterator[Pod]:
    process = pod.start("gatehouse")
    try:
        until(lambda: _ready(pod, process), "readiness on the ops port", 120)
        yield pod
    finally:
        stopped(process)


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
    """The pod of `helm test`, its init container first."""
    spec = one(objects, "Pod", "gatehouse-test")["spec"]
    pod = Pod(folder, spec, objects, claims=folder.parent / "claims", gateway=gateway.url, **more)  # type: ignore[arg-type]
    for each in spec.get("initContainers", ()):
        done = pod.run(each["name"])
        assert done.returncode == 0, done.stderr
    return pod.run("round-trip")


def test_one_pod_serves_both_eras_and_what_its_secret_says_from_now_on(tmp_path: Path) -> None:
    given = [*HERE, "--set", "existingConfig.secret=settings", "--set", "existingConfig.key=s.yaml"]
    objects, without = documents(template(*given, "--set", "test.existingSecret=key")), documents(template(*given))
    settings = {"settings": {"s.yaml": b"backends: {core: {module: backends.core}}"}}
    with serving(deployed(tmp_path / "first", objects, secrets=settings)) as pod:
        said = (pod.folder / "gatehouse.out").read_text()
        assert "gth_" not in said  # a key in a pod's log would be anybody's
        made = pod.run("gatehouse", "gatehouse", "key", "create", "--service", "helm-test")
        assert made.returncode == 0, made.stderr
        key = {"key": {"token": made.stdout.encode()}}
        done = round_trip(tmp_path / "test", objects, pod, secrets=key)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ok  2026-07-28  1 tools, called core_ping" in done.stdout
        assert "ok  2025-11-25  1 tools, called core_ping" in done.stdout
        refused = round_trip(tmp_path / "none", without, pod)
        assert refused.returncode == 1
        assert "create secret generic gatehouse-test" in refused.stdout
        strange = httpx.post(f"{pod.url}/mcp", headers={"host": "evil.example.org"}, trust_env=False, verify=False)
        assert strange.status_code == 421
        metrics = httpx.get(f"http://127.0.0.1:{pod.ops}/metrics", trust_env=False, verify=False)
        assert "gatehouse_calls_running" in metrics.text  # what the autoscaler may go by
        for path in ("/metrics", "/api/v1/usage", "/console"):  # for operators, on their own port alone
            assert httpx.get(f"{pod.url}{path}", trust_env=False, verify=False).status_code == 404
        unknown = httpx.get(f"http://127.0.0.1:{pod.ops}/api/v1/usage", trust_env=False, verify=False)
        assert unknown.status_code == 401
        # The kubelet replaces what is mounted; nobody restarts the pod.
        more = b"backends: {core: {module: backends.core}, project: {module: 'backends.core:project'}}"
        mount(pod.folder / "root" / "etc" / "gatehouse", {"gatehouse.yaml": more})
        until(lambda: "project_workspace_stats" in _asked(pod, made.stdout.strip(), "tools/list"), "the new backend")
    claim = tmp_path / "claims" / "gatehouse-data"
    assert {"gatehouse.db", "secrets"} <= {path.name for path in claim.iterdir()}


def _asked(pod: Pod, key: str, method: str) -> str:
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    sent = {**headers, **modern_headers(method)}
    return httpx.post(
        f"{pod.url}/mcp", json=modern(method), headers=sent, timeout=30, trust_env=False, verify=False
    ).text


def test_policies_of_the_values_lie_over_those_that_ship_and_are_in_force(tmp_path: Path) -> None:
    objects = documents(template("-f", str(values("external-idp"))))
    pod = deployed(tmp_path / "pod", objects, secrets={"gatehouse-backends": {"GITHUB_TOKEN": b"x"}})
    why = pod.run("gatehouse", "gatehouse", "policy", "test")
    # Every policy that ships has its row; ours has none, so it was read, compiled, and missed.
    assert "ours.maintainers" in why.stdout + why.stderr
    assert "1 mistake" in why.stdout + why.stderr


def test_several_pods_on_postgresql_and_redis_are_one_gateway_in_both_eras(
    tmp_path: Path, postgres_url: str, valkey_url: str, prefix: str
) -> None:
    given = {
        "gatehouse-secrets": {name: os.urandom(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"uri": postgres_url.encode()},
        "gatehouse-redis": {"url": valkey_url.encode()},
    }
    more = ["--set", f"config.bus.prefix={prefix}", "--set", "files.enabled=true"]
    more += ["--set-string", "policies.files.org/zz-ours\\.cedar=// nothing more"]
    objects = documents(template("-f", str(values("ha")), *HERE, *CORE, *more))
    job = Pod(tmp_path / "job", one(objects, "Job", "gatehouse-migrate")["spec"]["template"]["spec"], objects, given)
    done = job.run("migrate")
    assert done.returncode == 0, done.stderr
    assert "gateway: " in done.stdout
    # What a Job does not mount it does not look for: its root cannot be written.
    assert not Path("/var/lib/gatehouse-files").exists()
    with ExitStack() as stack:
        pods = [deployed(tmp_path / name, objects, secrets=given) for name in ("one", "two")]
        processes = [pod.start("gatehouse") for pod in pods]
        for process in processes:
            stack.callback(stopped, process)
        for pod, process in zip(pods, processes, strict=True):
            until(lambda pod=pod, process=process: _ready(pod, process), "readiness", 120)
        # The test makes itself a key, which holds for both.
        tried = round_trip(tmp_path / "test", objects, pods[1], secrets=given)
        assert tried.returncode == 0, tried.stdout + tried.stderr
        key = (tmp_path / "test" / "root" / "token" / "token").read_text().strip()
        _session_over(pods, key)


def _session_over(pods: list[Pod], key: str) -> None:
    """A session that one pod began is served by the other; so is a call that stands alone."""
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with httpx.Client(verify=False, headers=headers, timeout=30, trust_env=False) as http:
        begun = http.post(f"{pods[0].url}/mcp", json=message)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        call: Json = {"name": "core_ping", "arguments": {}}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        for pod in reversed(pods):
            answer = http.post(f"{pod.url}/mcp", json=asked, headers=session)
            assert '"ok":true' in answer.text.replace(" ", ""), answer.text
            answer = http.post(
                f"{pod.url}/mcp", json=modern("tools/call", call), headers=modern_headers("tools/call", call)
            )
            assert "serverTime" in answer.text, answer.text


def test_what_the_chart_lets_through_the_gateway_can_be_started_with(tmp_path: Path) -> None:
    """Not a start, but all that a start would refuse: settings, modules, policies."""
    given = {
        "gatehouse-secrets": {name: os.urandom(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"url": b"postgresql://x@127.0.0.1:1/x"},
        "gatehouse-redis": {"url": b"redis://127.0.0.1:1/0"},
    }
    for case in ("gateway-api", "restricted-egress"):
        pod = deployed(tmp_path / case, documents(template("-f", str(values(case)))), secrets=given)
        checked = pod.run("gatehouse", "gatehouse", "check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_pod_that_anybody_could_read_the_secrets_of_does_not_start(tmp_path: Path, postgres_url: str) -> None:
    given = {
        "gatehouse-secrets": {name: secrets.token_bytes(32) for name in ("pepper", "seal", "signing")},
        "gatehouse-database": {"uri": postgres_url.encode()},
        "gatehouse-redis": {"url": b"redis://127.0.0.1:1/0"},
    }
    objects = documents(template("-f", str(values("ha")), *HERE, *CORE))
    pod = deployed(tmp_path / "pod", objects, secrets=given)
    volume = next(each for each in pod.spec["volumes"] if each["name"] == "secrets")
    volume["secret"]["defaultMode"] = 0o444
    done = pod.run("gatehouse", "gatehouse", "key", "create", "--subject", "alice")
    assert done.returncode != 0
    assert "may be read by others" in done.stderr
