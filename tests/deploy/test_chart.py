"""The Helm chart is valid on three Kubernetes releases, rejects invalid values, and its documentation is correct."""

import base64
import importlib.util
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CASES, CHART, RELEASES, ROOT, documents, golden, helm, one, rendered, template, values
from tests.deploy.golden import golden_file
from tests.peers.npm import NODE, environment, install_package
from tests.prerequisites import skip_or_fail
from tests.repo.documents import blocks, links

CRDS = {
    "HTTPRoute": ("@kubernetes-models/gateway-api", "2.0.0", "gateway.networking.k8s.io/v1"),
    "ServiceMonitor": ("@kubernetes-models/prometheus-operator", "6.0.0", "monitoring.coreos.com/v1"),
    "ScaledObject": ("@kubernetes-models/keda", "2.0.0", "keda.sh/v1alpha1"),
    "PrometheusRule": ("@kubernetes-models/prometheus-operator", "6.0.0", "monitoring.coreos.com/v1"),
}
SHARED = [
    *("--set", "database.existingSecret=d", "--set", "secrets.existingSecret=s", "--set", "redis.existingSecret=r"),
]

SCALED = [*SHARED, *("--set", "config.backends.core.module=backends.core", "--set", "autoscaling.enabled=true")]
SCALED += ["--set", "autoscaling.keda.enabled=true"]


def make_chart() -> Any:
    spec = importlib.util.spec_from_file_location("make_chart", ROOT / "deploy" / "helm" / "make_chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_helm_lint_passes_for_every_case() -> None:
    for case in CASES:
        done = helm("lint", "--strict", str(CHART), "-f", str(values(case)))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_every_object_is_valid_for_the_kubernetes_release(release: str) -> None:
    try:
        import kubernetes_validate
    except ImportError:
        skip_or_fail("kubernetes-validate is not installed")
        return
    seen: set[str] = set()
    for case in CASES:
        for each in rendered(case, release):
            if each["kind"] not in CRDS:
                kubernetes_validate.validate(each, release, strict=True)
                seen.add(each["kind"])
    assert {"Deployment", "Job", "Pod", "NetworkPolicy", "HorizontalPodAutoscaler", "PersistentVolumeClaim"} <= seen
    broken = json.loads(json.dumps(one(rendered("default", release), "Deployment")))
    broken["spec"]["template"]["spec"]["containers"][0]["comand"] = ["sh"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, release, strict=True)


def test_every_custom_object_is_valid_for_its_definition() -> None:
    objects = [each for case in CASES for each in rendered(case) if each["kind"] in CRDS]
    assert {each["kind"] for each in objects} == set(CRDS)
    wrong = json.loads(json.dumps(objects))
    for each in wrong:
        each["spec"]["endpoints" if each["kind"] == "ServiceMonitor" else "rules"] = "none"
        each["spec"]["groups"] = each["spec"]["triggers"] = "none"
    messages = _validate_custom_objects([*objects, *wrong])
    assert messages[: len(objects)] == [None] * len(objects)
    assert None not in messages[len(objects) :]


def _validate_custom_objects(objects: list[Any]) -> list[str | None]:
    """Validate each object against its definition and return the error messages."""
    requests: list[Any] = []
    for each in objects:
        package, version, group = CRDS[each["kind"]]
        module = install_package((package, version)) / "node_modules" / package / group / f"{each['kind']}.js"
        requests.append({"module": str(module), "object": each})
    command, stdin = [str(NODE), str(Path(__file__).with_name("crds.mjs"))], json.dumps(requests)
    done = subprocess.run(command, env=environment(), input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_rendering_matches_the_golden_file(case: str) -> None:
    assert golden(case) == golden_file(case).read_text("utf-8"), (
        "review the difference, then run: python -m tests.deploy.golden"
    )


@pytest.mark.parametrize("case", CASES)
def test_rendering_is_reproducible_and_generates_no_secret(case: str) -> None:
    assert documents(template("-f", str(values(case)))) == rendered(case)
    assert not [each for each in rendered(case) if each["kind"] == "Secret"]


def test_packaged_chart_renders_the_same_objects(tmp_path: Path) -> None:
    packed = helm("package", str(CHART), "-d", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.iterdir()
    arguments = ["-n", "prod", "--kube-version", RELEASES[1], "-f", str(values("everything"))]
    assert documents(helm("template", "gatehouse", str(archive), *arguments)) == rendered("everything")
    with tarfile.open(archive) as members:
        assert not [name for name in members.getnames() if "/ci/" in name]


def test_no_custom_resource_is_enabled_by_default() -> None:
    assert {each["apiVersion"] for each in rendered("default")} <= {"v1", "apps/v1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "replicaCout=2"], "Additional property replicaCout is not allowed"),
        (["--set", "drain.seconds=2"], "Additional property seconds is not allowed"),
        (["--set", "config.servr.workers=2"], "Additional property servr is not allowed"),
        (["--set", "config.server.port=80"], "Additional property port is not allowed"),
        (["--set", "config.database.url=x"], "Additional property url is not allowed"),
        (["--set-string", "replicaCount=two"], "replicaCount"),
        (["--set", "service.type=External"], "service.type"),
        (["--set", "replicaCount=2"], "set database.existingSecret"),
        (["--set", "autoscaling.enabled=true"], "set database.existingSecret"),
        (["--set", "replicaCount=2", "--set", "database.existingSecret=d"], "set redis.existingSecret"),
        (["--set", "database.existingSecret=d"], "head -c 32 /dev/urandom"),
        (SHARED, "name those you want in config.backends"),
        ([*SHARED, "--set", "redis.url=redis://x"], "not both"),
        (["--set", "files.enabled=true"], "SQLite does not belong on a shared volume"),
        (["--set", "existingConfig.secret=s", "--set", "config.limits.calls=1/minute"], "config or existingConfig"),
        (["--set", "policies.secret=s", "--set", "policies.configMap=c"], "one of policies.files"),
        (["--set", "ingress.enabled=true"], "needs ingress.hosts"),
        (["--set", "httpRoute.enabled=true"], "needs httpRoute.parentRefs"),
        (["--set", "opsIngress.enabled=true"], "needs opsIngress.host"),
        ([*SCALED, "--set", "autoscaling.callsInFlight=9"], "needs autoscaling.keda.prometheus"),
    ],
)
def test_invalid_values_are_rejected_with_the_correction(arguments: list[str], message: str) -> None:
    done = template(*arguments)
    assert done.returncode != 0
    assert message in done.stderr


def test_only_one_autoscaler_is_rendered() -> None:
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    for case, scales in (("gateway-api", "HorizontalPodAutoscaler"), ("everything", "ScaledObject")):
        assert kinds & {each["kind"] for each in rendered(case)} == {scales}
        assert "replicas" not in one(rendered(case), "Deployment")["spec"]


def test_console_public_url_follows_the_ops_ingress_or_value() -> None:
    def env(objects: list[Any]) -> dict[str, str]:
        container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        return {each["name"]: each.get("value") for each in container["env"]}

    assert env(rendered("everything"))["GATEHOUSE__SERVER__OPS_PUBLIC_URL"] == "https://console.example.org"
    rule = one(rendered("everything"), "Ingress", "gatehouse-ops")["spec"]["rules"][0]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "gatehouse-ops", "port": {"name": "ops"}}
    objects = documents(template("--set", "opsPublicUrl=http://127.0.0.1:9090/"))
    assert env(objects)["GATEHOUSE__SERVER__OPS_PUBLIC_URL"] == "http://127.0.0.1:9090"
    assert "GATEHOUSE__SERVER__OPS_PUBLIC_URL" not in env(rendered("default"))


def test_chart_icon_is_the_console_icon() -> None:
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["icon"]
    drawn = (ROOT / "gateway" / "console" / "static" / "icon.svg").read_bytes()
    assert icon == f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}"


def test_values_shown_in_the_readme_render(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(CHART / "README.md") if block.text.startswith("# ha.yaml")]
    (tmp_path / "ha.yaml").write_text(shown)
    done = template("-f", str(tmp_path / "ha.yaml"))
    assert done.returncode == 0, done.stderr
    assert one(documents(done), "Deployment")["spec"]["replicas"] == 3


def test_values_shown_on_the_kubernetes_page_render(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "kubernetes.md")
    shown = {block.text.splitlines()[0]: block.text for block in page if block.language == "text"}
    assert list(shown) == ["# values.yaml", "# ha.yaml"]
    for number, text in enumerate(shown.values()):
        (tmp_path / f"{number}.yaml").write_text(text)
        done = template("-f", str(tmp_path / f"{number}.yaml"))
        assert done.returncode == 0, done.stderr
        assert one(documents(done), "Ingress")["spec"]["rules"][0]["host"] == "mcp.example.org"
    (readme,) = [block.text for block in blocks(CHART / "README.md") if block.text.startswith("# ha.yaml")]
    assert shown["# ha.yaml"] == readme


def test_global_values_of_an_umbrella_chart_are_accepted() -> None:
    assert template("--set", "global.anything=else").returncode == 0


def test_replicas_is_not_set_with_an_autoscaler() -> None:
    assert "replicas" not in one(rendered("gateway-api"), "Deployment")["spec"]
    assert one(rendered("ha"), "Deployment")["spec"]["replicas"] == 3


def test_sqlite_deployment_uses_the_recreate_strategy() -> None:
    assert one(rendered("default"), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert one(rendered("ha"), "Deployment")["spec"]["strategy"] == rolling


@pytest.mark.parametrize("release", RELEASES)
def test_termination_grace_period_covers_drain_and_pre_stop(release: str) -> None:
    for case, waits, calls in (("default", 7, 60), ("everything", 15, 300)):
        spec = one(rendered(case, release), "Deployment")["spec"]["template"]["spec"]
        container = spec["containers"][0]
        env = {each["name"]: each.get("value") for each in container["env"]}
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert (sleep > 0) == (release != "1.27")
        assert sleep + int(env["GATEHOUSE__SERVER__DRAIN_GRACE"]) == waits
        assert int(env["GATEHOUSE__SERVER__DRAIN_SECONDS"]) == calls
        assert spec["terminationGracePeriodSeconds"] > waits + calls


def test_migration_job_runs_first_with_the_environment_of_the_pods() -> None:
    for case in ("ha", "everything"):
        objects = rendered(case)
        job = one(objects, "Job", "gatehouse-migrate")
        pod, served = job["spec"]["template"]["spec"], one(objects, "Deployment")["spec"]["template"]["spec"]
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert pod["containers"][0]["env"] == served["containers"][0]["env"]
        assert pod["containers"][0].get("envFrom") == served["containers"][0].get("envFrom")
        assert pod["containers"][0]["image"] == served["containers"][0]["image"]
        assert pod.get("imagePullSecrets") == served.get("imagePullSecrets")
        # Every object it refers to exists already: the operator creates it, or an earlier hook does.
        hooks = {
            each["metadata"]["name"]
            for each in objects
            if each["metadata"].get("annotations", {}).get("helm.sh/hook-weight") == "-10"
        }
        theirs = {"gatehouse-secrets", "gatehouse-database", "gatehouse-redis", "gatehouse-settings", "our-authority"}
        named = {
            each[kind].get("name") or each[kind]["secretName"]
            for each in pod["volumes"]
            for kind in each.keys() & {"secret", "configMap"}
        }
        assert named <= hooks | theirs
        assert pod["serviceAccountName"] in hooks
    assert not [each for each in rendered("single") if each["kind"] == "Job"]


def test_changed_settings_or_policies_change_the_pod_checksums() -> None:
    def stamps(*arguments: str) -> dict[str, str]:
        objects = documents(template(*arguments))
        return one(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]

    first = stamps("--set", "config.limits.calls=1/minute", "--set-string", "policies.files.org/x\\.cedar=//1")
    second = stamps("--set", "config.limits.calls=2/minute", "--set-string", "policies.files.org/x\\.cedar=//1")
    third = stamps("--set", "config.limits.calls=2/minute", "--set-string", "policies.files.org/x\\.cedar=//2")
    assert first["checksum/config"] != second["checksum/config"] == third["checksum/config"]
    assert first["checksum/policies"] == second["checksum/policies"] != third["checksum/policies"]


def test_restricted_egress_blocks_the_internet_and_the_metadata_address() -> None:
    def blocks(case: str) -> list[Any]:
        rules = one(rendered(case), "NetworkPolicy")["spec"]["egress"]
        assert all(rule.get("to") for rule in rules) or case == "everything"
        return [peer["ipBlock"] for rule in rules for peer in rule.get("to", ()) if "ipBlock" in peer]

    assert blocks("restricted-egress") == [{"cidr": "10.20.0.0/24"}]
    (everywhere,) = [block for block in blocks("everything") if block["cidr"] == "0.0.0.0/0"]
    assert "169.254.0.0/16" in everywhere["except"]


def test_ingress_and_route_allow_long_streams() -> None:
    annotations = one(rendered("single"), "Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 3600
    assert one(rendered("gateway-api"), "HTTPRoute")["spec"]["rules"][0]["timeouts"] == {"request": "0s"}


def test_ops_port_is_a_cluster_internal_service() -> None:
    objects = rendered("everything")
    assert [port["name"] for port in one(objects, "Service")["spec"]["ports"]] == ["http"]
    assert one(objects, "Service", "gatehouse-ops")["spec"]["type"] == "ClusterIP"


def test_duplicate_labels_are_rendered_once_and_chart_labels_win() -> None:
    text = template("-f", str(values("everything"))).stdout
    for labels in re.findall(r"^( *)labels:\n((?:\1  .+\n)+)", text, re.MULTILINE):
        keys = [line.partition(":")[0] for line in labels[1].splitlines()]
        assert len(keys) == len(set(keys))
    pod = one(rendered("everything"), "Deployment")["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gatehouse"
    assert pod["metadata"]["labels"]["team"] == "tools"


def test_generated_chart_files_are_up_to_date() -> None:
    written = make_chart().generated_files()
    there = {path.relative_to(CHART).as_posix() for path in (CHART / "files").rglob("*") if path.is_file()}
    assert there == {name for name in written if name.startswith("files/")}
    for name, content in written.items():
        assert (CHART / name).read_bytes() == content, f"{name}: python deploy/helm/make_chart.py"


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    known = {value.name for value in make_chart().described_values(text)}

    def leaves(tree: Any, path: str = "") -> Any:
        for key, value in tree.items():
            here = f"{path}{key}"
            if here in known:
                yield here
            elif isinstance(value, dict) and value:
                yield from leaves(value, f"{here}.")
            else:
                raise AssertionError(f"{here} has no description")

    assert set(leaves(yaml.safe_load(text))) == known


def test_chart_cases_cover_every_enabled_switch() -> None:
    assert set(CASES) == {"default", "single", "ha", "external-idp", "gateway-api", "restricted-egress", "everything"}
    used = "".join(values(case).read_text("utf-8") for case in CASES)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    switches = [key for key, value in defaults.items() if isinstance(value, dict) and value.get("enabled") is False]
    assert not [key for key in switches if f"{key}:" not in used]


def test_notes_show_the_url_and_the_client_command(tmp_path: Path) -> None:
    # Helm shows the notes only on install, which needs a cluster: render them as the text of an additional object.
    chart = tmp_path / "gatehouse"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text("utf-8")
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{- define "notes" }}}}{text}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | quote }}\n')

    def notes(*arguments: str) -> str:
        done = helm("template", "gatehouse", str(chart), "-n", "prod", "-s", "templates/notes.yaml", *arguments)
        return documents(done)[0]["text"]

    single = notes("-f", str(values("single")))
    assert "Gatehouse serves https://mcp.example.org/mcp" in single
    assert "claude mcp add --transport http gatehouse https://mcp.example.org/mcp" in single
    assert "WARNING" not in single
    default = notes()
    assert "http://gatehouse.prod.svc/mcp" in default
    assert "port-forward" in default
    assert "helm-test" in default
    assert "port-forward deploy/gatehouse 9090" in default
    assert "http://127.0.0.1:9090/console" in notes("--set", "opsPublicUrl=http://127.0.0.1:9090")
    assert "WARNING: persistence is disabled" in notes("--set", "persistence.enabled=false")
    assert "is not https" in notes("--set", "publicUrl=http://mcp.example.org")


def test_chart_app_version_is_the_project_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert project
    assert chart["appVersion"] == project[1]


def test_every_link_in_the_readme_resolves() -> None:
    found = links(CHART / "README.md")
    assert found
    assert not [link for link in found if not (CHART / link).exists()]
