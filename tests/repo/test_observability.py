"""What ships for operators' own stacks is true: the collector files, the dashboards, the rules and their runbooks."""

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings.telemetry import OtlpSettings
from gateway.telemetry.metric_families import Histogram, MetricFamily, to_prometheus_text
from gateway.upstream.health import UpstreamHealth
from gateway.wiring.telemetry import backend_metrics
from tests.prerequisites import skip_or_fail

ROOT = Path(__file__).parents[2]
STACK = ROOT / "deploy" / "observability"
CORE = {
    "receivers": {"otlp": {"protocols"}},
    "processors": {
        "memory_limiter": {"check_interval", "limit_mib", "spike_limit_mib"},
        "batch": {"send_batch_size", "send_batch_max_size", "timeout"},
    },
    "exporters": {
        "otlp": {"endpoint", "tls", "sending_queue", "retry_on_failure"},
        "otlphttp": {"endpoint", "tls", "sending_queue", "retry_on_failure"},
        "debug": {"verbosity"},
    },
}
CONTRIB = {
    **CORE,
    "processors": {
        **CORE["processors"],
        "redaction": {"allow_all_keys", "blocked_values", "summary"},
        "tail_sampling": {"decision_wait", "num_traces", "policies"},
    },
}
FILES = {ROOT / "otel-collector.yaml": CORE, STACK / "otel-collector-contrib.yaml": CONTRIB}


def problems(config: Any, known: Any) -> list[str]:
    """Return all mistakes in a collector file."""
    found: list[str] = []
    service = config["service"]
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in service["pipelines"].values() for name in pipeline[kind]}
        defined = set(config[kind])
        found += [f"{kind}: {name} is not defined" for name in used - defined]
        found += [f"{kind}: {name} is not used" for name in defined - used]
        for name, options in config[kind].items():
            type_ = name.split("/")[0]
            if type_ not in known[kind]:
                found.append(f"{kind}: {name} is not in this distribution")
            else:
                found += [
                    f"{kind}.{name}: {key} is not known" for key in (options or {}) if key not in known[kind][type_]
                ]
    for name, pipeline in service["pipelines"].items():
        if pipeline["processors"][0] != "memory_limiter":
            found.append(f"{name}: memory_limiter is not first")
        if pipeline["processors"][-1] != "batch":
            found.append(f"{name}: batch is not last")
    if set(service["pipelines"]) != {"traces", "metrics", "logs"}:
        found.append("a signal has no pipeline")
    found += [f"{key} is not known" for key in config if key not in ("receivers", "processors", "exporters", "service")]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_collector_file_defines_what_it_uses_and_uses_what_it_defines(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text()), FILES[path]) == []


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (lambda config: config["exporters"].pop("debug"), "debug is not defined"),
        (lambda config: config["processors"].update(filter={}), "filter is not used"),
        (lambda config: config["service"]["pipelines"]["logs"]["processors"].reverse(), "memory_limiter is not first"),
        (lambda config: config["processors"]["batch"].update(size=1), "size is not known"),
        (lambda config: config["service"]["pipelines"].pop("metrics"), "a signal has no pipeline"),
    ],
)
def test_the_check_of_collector_files_finds_what_is_wrong(broken: Any, found: str) -> None:
    config = yaml.safe_load((ROOT / "otel-collector.yaml").read_text())
    broken(config)
    assert any(found in problem for problem in problems(config, CORE))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_ports_agree_with_the_gateways_settings_and_nothing_listens_to_the_world(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    protocols = config["receivers"]["otlp"]["protocols"]
    described = OtlpSettings.model_fields["url"].description or ""
    for name in ("http", "grpc"):
        host, port = protocols[name]["endpoint"].rsplit(":", 1)
        assert host == "${env:OTLP_HOST:-127.0.0.1}"
        assert port in described
    compose = yaml.safe_load((STACK / "compose.yaml").read_text())
    published = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert {"127.0.0.1:4317:4317", "127.0.0.1:4318:4318"} <= set(published)
    for variable in re.findall(r"\$\{env:([A-Z_]+)", path.read_text()):
        assert variable in compose["services"]["collector"]["environment"]


# ---- metrics that exist


async def existing_metrics(start: Any) -> set[str]:
    """Every name that a gateway can show: a family without points has none yet."""
    async with start(backends={"core": {"module": "backends.core"}}) as gateway:
        families = gateway.app.telemetry.families()
    families += backend_metrics({"x": UpstreamHealth(state="up", transport="http", since=0.0)}, {"x": 1.0})
    names: set[str] = set()
    for family in families:
        sample = MetricFamily(family.name, family.help, family.kind, family.unit)
        sample.add(Histogram((1.0,)) if family.kind == "histogram" else 0)
        names |= {
            line.split("{")[0].split(" ")[0] for line in to_prometheus_text([sample]).splitlines() if line[0] != "#"
        }
    return names


def metric_names(text: str) -> set[str]:
    return set(re.findall(r"\b(?:gatehouse|mcp|process)_[a-z_]+[a-z]\b", text))


def queries() -> dict[str, set[str]]:
    found = {f"dashboard {path.name}": _expressions(path) for path in (STACK / "grafana/dashboards").glob("*.json")}
    rules = yaml.safe_load((STACK / "alerts.yaml").read_text())
    for group in rules["groups"]:
        found |= {f"alert {rule['alert']}": metric_names(rule["expr"]) for rule in group["rules"]}
    found["alerts.test.yaml"] = metric_names((STACK / "alerts.test.yaml").read_text())
    return found


def _expressions(path: Path) -> set[str]:
    board = json.loads(path.read_text())
    texts = [target.get("expr", "") for panel in board["panels"] for target in panel["targets"]]
    texts += [each["query"].partition("(")[2].partition(",")[0] for each in board["templating"]["list"]]
    return {name for text in texts for name in metric_names(re.sub(r"\{[^{}]*\}|by \([^)]*\)", "", text))}


async def test_every_metric_named_in_a_dashboard_or_rule_exists(start: Any) -> None:
    names = await existing_metrics(start)
    wanted = queries()
    assert len(wanted) >= 14
    assert all(wanted.values())
    assert {where: sorted(missing) for where, used in wanted.items() if (missing := used - names)} == {}


def test_dashboards_are_what_their_source_says() -> None:
    spec = importlib.util.spec_from_file_location("make_dashboards", STACK / "make_dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    written = {path.stem: path.read_text() for path in source.FOLDER.glob("*.json")}
    assert written == {name: source.text(name) for name in source.ALL}


def test_every_rule_has_a_runbook_and_every_runbook_a_rule() -> None:
    rules = [rule for group in yaml.safe_load((STACK / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
    linked = {rule["annotations"]["runbook"] for rule in rules}
    assert linked == {str(path.relative_to(ROOT)) for path in (STACK / "runbooks").glob("*.md")}
    tested = (STACK / "alerts.test.yaml").read_text()
    assert all(f"alertname: {rule['alert']}" in tested for rule in rules)


def test_the_rules_pass_promtool() -> None:
    if (promtool := shutil.which("promtool")) is None:
        skip_or_fail("promtool is missing: apt-get install prometheus")
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run([promtool, *command], cwd=STACK, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
