"""The chart: valid on three releases of Kubernetes; what cannot work is refused; its pages are true."""

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
from tests.deploy.golden import kept
from tests.missing import missing
from tests.peers.npm import NODE, environment, install_package
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


def test_the_linter_has_nothing_to_say() -> None:
    for case in CASES:
        done = helm("lint", "--strict", str(CHART), "-f", str(values(case)))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_every_object_is_what_that_release_of_kubernetes_accepts(release: str) -> None:
    try:
        import kubernetes_validate
    except ImportError:
        missing("kubernetes-validate is not installed")
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


def test_every_custom_object_is_what_its_definition_accepts() -> None:
    objects = [each for case in CASES for each in rendered(case) if each["kind"] in CRDS]
    assert {each["kind"] for each in objects} == set(CRDS)
    wrong = json.loads(json.dumps(objects))
    for each in wrong:
        each["spec"]["endpoints" if each["kind"] == "ServiceMonitor" else "rules"] = "none"
        each["spec"]["groups"] = each["spec"]["triggers"] = "none"
    said = _checked([*objects, *wrong])
    assert said[: len(objects)] == [None] * len(objects)
    assert None not in said[len(objects) :]


def _checked(objects: list[Any]) -> list[str | None]:
    """What their definitions say to each."""
    asked: list[Any] = []
    for each in objects:
        package, version, group = CRDS[each["kind"]]
        module = install_package((package, version)) / "node_modules" / package / group / f"{each['kind']}.js"
        asked.append({"module": str(module), "object": each})
    command, given = [str(NODE), str(Path(__file__).with_name("crds.mjs"))], json.dumps(asked)
    done = subprocess.run(command, env=environment(), input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("case", CASES)
def test_what_it_renders_is_what_was_looked_at(case: str) -> None:
    assert golden(case) == kept(case).read_text("utf-8"), "look at it, then: python -m tests.deploy.golden"


@pytest.mark.parametrize("case", CASES)
def test_it_renders_the_same_twice_for_no_secret_is_made_up(case: str) -> None:
    assert documents(template("-f", str(values(case)))) == rendered(case)
    assert not [each for each in rendered(case) if each["kind"] == "Secret"]


def test_what_is_packaged_is_whole(tmp_path: Path) -> None:
    packed = helm("package", str(CHART), "-d", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.iterdir()
    given = ["-n", "prod", "--kube-version", RELEASES[1], "-f", str(values("everything"))]
    assert documents(helm("template", "gatehouse", str(archive), *given)) == rendered("everything")
    with tarfile.open(archive) as members:
        assert not [name for name in members.getnames() if "/ci/" in name]


def test_nothing_that_needs_a_definition_is_on_by_default() -> None:
    assert {each["apiVersion"] for each in rendered("default")} <= {"v1", "apps/v1"}


@pytest.mark.parametrize(
    ("given", "said"),
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
def test_what_cannot_work_is_refused_with_the_mend(given: list[str], said: str) -> None:
    done = template(*given)
    assert done.returncode != 0
    assert said in done.stderr


def test_one_of_two_scales_never_both() -> None:
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    for case, scales in (("gateway-api", "HorizontalPodAutoscaler"), ("everything", "ScaledObject")):
        assert kinds & {each["kind"] for each in rendered(case)} == {scales}
        assert "replicas" not in one(rendered(case), "Deployment")["spec"]


def test_the_console_gives_out_the_address_that_operators_come_by() -> None:
    def env(objects: list[Any]) -> dict[str, str]:
        container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        return {each["name"]: each.get("value") for each in container["env"]}

    assert env(rendered("everything"))["GATEHOUSE__SERVER__OPS_PUBLIC_URL"] == "https://console.example.org"
    rule = one(rendered("everything"), "Ingress", "gatehouse-ops")["spec"]["rules"][0]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "gatehouse-ops", "port": {"name": "ops"}}
    given = documents(template("--set", "opsPublicUrl=http://127.0.0.1:9090/"))
    assert env(given)["GATEHOUSE__SERVER__OPS_PUBLIC_URL"] == "http://127.0.0.1:9090"
    assert "GATEHOUSE__SERVER__OPS_PUBLIC_URL" not in env(rendered("default"))


def test_the_icon_is_the_console_s_own() -> None:
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["icon"]
    drawn = (ROOT / "gateway" / "console" / "static" / "icon.svg").read_bytes()
    assert icon == f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode()}"


def test_the_values_that_its_readme_shows_can_be_installed(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(CHART / "README.md") if block.text.startswith("# ha.yaml")]
    (tmp_path / "ha.yaml").write_text(shown)
    done = template("-f", str(tmp_path / "ha.yaml"))
    assert done.returncode == 0, done.stderr
    assert one(documents(done), "Deployment")["spec"]["replicas"] == 3


def test_an_umbrella_chart_may_share_its_globals() -> None:
    assert template("--set", "global.anything=else").returncode == 0


def test_an_autoscaler_alone_decides_how_many_pods_there_are() -> None:
    assert "replicas" not in one(rendered("gateway-api"), "Deployment")["spec"]
    assert one(rendered("ha"), "Deployment")["spec"]["replicas"] == 3


def test_a_claim_of_sqlite_is_never_used_by_two_pods() -> None:
    assert one(rendered("default"), "Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert one(rendered("ha"), "Deployment")["spec"]["strategy"] == rolling


@pytest.mark.parametrize("release", RELEASES)
def test_the_time_that_a_pod_has_to_leave_is_enough_for_all_it_does_then(release: str) -> None:
    for case, waits, calls in (("default", 7, 60), ("everything", 15, 300)):
        spec = one(rendered(case, release), "Deployment")["spec"]["template"]["spec"]
        container = spec["containers"][0]
        env = {each["name"]: each.get("value") for each in container["env"]}
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert (sleep > 0) == (release != "1.27")
        assert sleep + int(env["GATEHOUSE__SERVER__DRAIN_GRACE"]) == waits
        assert int(env["GATEHOUSE__SERVER__DRAIN_SECONDS"]) == calls
        assert spec["terminationGracePeriodSeconds"] > waits + calls


def test_the_migration_runs_before_with_what_the_pods_will_have() -> None:
    for case in ("ha", "everything"):
        objects = rendered(case)
        job = one(objects, "Job", "gatehouse-migrate")
        pod, served = job["spec"]["template"]["spec"], one(objects, "Deployment")["spec"]["template"]["spec"]
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert pod["containers"][0]["env"] == served["containers"][0]["env"]
        assert pod["containers"][0].get("envFrom") == served["containers"][0].get("envFrom")
        assert pod["containers"][0]["image"] == served["containers"][0]["image"]
        assert pod.get("imagePullSecrets") == served.get("imagePullSecrets")
        # Whatever it names exists before: it is yours, or a hook that comes earlier.
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


def test_new_settings_and_policies_start_new_pods() -> None:
    def stamps(*given: str) -> dict[str, str]:
        objects = documents(template(*given))
        return one(objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]

    first = stamps("--set", "config.limits.calls=1/minute", "--set-string", "policies.files.org/x\\.cedar=//1")
    second = stamps("--set", "config.limits.calls=2/minute", "--set-string", "policies.files.org/x\\.cedar=//1")
    third = stamps("--set", "config.limits.calls=2/minute", "--set-string", "policies.files.org/x\\.cedar=//2")
    assert first["checksum/config"] != second["checksum/config"] == third["checksum/config"]
    assert first["checksum/policies"] == second["checksum/policies"] != third["checksum/policies"]


def test_restricted_egress_leaves_no_way_to_the_internet_or_the_metadata_address() -> None:
    def blocks(case: str) -> list[Any]:
        rules = one(rendered(case), "NetworkPolicy")["spec"]["egress"]
        assert all(rule.get("to") for rule in rules) or case == "everything"
        return [peer["ipBlock"] for rule in rules for peer in rule.get("to", ()) if "ipBlock" in peer]

    assert blocks("restricted-egress") == [{"cidr": "10.20.0.0/24"}]
    (everywhere,) = [block for block in blocks("everything") if block["cidr"] == "0.0.0.0/0"]
    assert "169.254.0.0/16" in everywhere["except"]


def test_streams_pass_an_ingress_and_a_route() -> None:
    annotations = one(rendered("single"), "Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) > 3600
    assert one(rendered("gateway-api"), "HTTPRoute")["spec"]["rules"][0]["timeouts"] == {"request": "0s"}


def test_operators_have_a_port_that_does_not_leave_the_cluster() -> None:
    objects = rendered("everything")
    assert [port["name"] for port in one(objects, "Service")["spec"]["ports"]] == ["http"]
    assert one(objects, "Service", "gatehouse-ops")["spec"]["type"] == "ClusterIP"


def test_a_label_that_is_given_twice_is_written_once_and_ours_stay() -> None:
    text = template("-f", str(values("everything"))).stdout
    for labels in re.findall(r"^( *)labels:\n((?:\1  .+\n)+)", text, re.MULTILINE):
        keys = [line.partition(":")[0] for line in labels[1].splitlines()]
        assert len(keys) == len(set(keys))
    pod = one(rendered("everything"), "Deployment")["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "gatehouse"
    assert pod["metadata"]["labels"]["team"] == "tools"


def test_what_is_written_from_elsewhere_is_up_to_date() -> None:
    written = make_chart().written()
    there = {path.relative_to(CHART).as_posix() for path in (CHART / "files").rglob("*") if path.is_file()}
    assert there == {name for name in written if name.startswith("files/")}
    for name, content in written.items():
        assert (CHART / name).read_bytes() == content, f"{name}: python deploy/helm/make_chart.py"


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    known = {value.name for value in make_chart().described(text)}

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


def test_every_case_of_the_issue_is_there_and_together_they_use_every_switch() -> None:
    assert set(CASES) == {"default", "single", "ha", "external-idp", "gateway-api", "restricted-egress", "everything"}
    used = "".join(values(case).read_text("utf-8") for case in CASES)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    switches = [key for key, value in defaults.items() if isinstance(value, dict) and value.get("enabled") is False]
    assert not [key for key in switches if f"{key}:" not in used]


def test_the_notes_say_the_address_and_the_line_that_connects_a_client(tmp_path: Path) -> None:
    # Only an install shows them, which needs a cluster: here they are the text of one object more.
    chart = tmp_path / "gatehouse"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text("utf-8")
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{- define "notes" }}}}{text}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('kind: Notes\ntext: {{ include "notes" . | quote }}\n')

    def notes(*given: str) -> str:
        done = helm("template", "gatehouse", str(chart), "-n", "prod", "-s", "templates/notes.yaml", *given)
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
    assert "WARNING: persistence is off" in notes("--set", "persistence.enabled=false")
    assert "is not https" in notes("--set", "publicUrl=http://mcp.example.org")


def test_the_chart_is_of_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert project
    assert chart["appVersion"] == project[1]


def test_every_link_of_its_readme_leads_somewhere() -> None:
    found = links(CHART / "README.md")
    assert found
    assert not [link for link in found if not (CHART / link).exists()]
