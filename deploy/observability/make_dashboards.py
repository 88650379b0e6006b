"""Writes the Grafana dashboards: `python deploy/observability/make_dashboards.py`. Edit this, never the JSON."""

import json
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "grafana" / "dashboards"
Json = dict[str, Any]

_FAILED: Final = 'outcome=~"internal|unavailable|timeout|backend_error"'


def panel(title: str, *queries: tuple[str, str], unit: str = "short", kind: str = "timeseries", wide: int = 12) -> Json:
    targets = [
        {"refId": chr(65 + number), "expr": expr, "legendFormat": legend, "datasource": {"uid": "prometheus"}}
        for number, (expr, legend) in enumerate(queries)
    ]
    return {
        "title": title,
        "type": kind,
        "datasource": {"type": "prometheus", "uid": "prometheus"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "gridPos": {"w": wide, "h": 8},
        "targets": targets,
    }


def traces(title: str, query: str) -> Json:
    """The traces behind the graphs: one click from here to a waterfall."""
    target = {"refId": "A", "queryType": "traceql", "query": query, "limit": 20, "datasource": {"uid": "tempo"}}
    return {
        "title": title,
        "type": "table",
        "datasource": {"type": "tempo", "uid": "tempo"},
        "gridPos": {"w": 24, "h": 9},
        "targets": [target],
    }


def variable(name: str, metric: str) -> Json:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "prometheus"},
        "query": f"label_values({metric}, {name})",
        "refresh": 2,
        "includeAll": False,
    }


def quantiles(metric: str, chosen: str = "", by: str = "") -> tuple[tuple[str, str], ...]:
    grouped = f"le, {by}" if by else "le"
    named = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (
            f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{chosen}[$__rate_interval])))",
            f"p{p}{named}",
        )
        for q, p in ((0.5, 50), (0.95, 95), (0.99, 99))
    )


def rate(metric: str, by: str, chosen: str = "") -> tuple[str, str]:
    return (f"sum by ({by}) (rate({metric}{chosen}[$__rate_interval]))", f"{{{{{by}}}}}")


def overview() -> Json:
    return dashboard(
        "overview",
        "Gatehouse: overview",
        panel("Calls a second, by outcome", rate("gatehouse_calls_total", "outcome"), unit="reqps"),
        panel("How long calls take", *quantiles("gatehouse_call_duration_seconds"), unit="s"),
        panel("Calls a second, by tenant", rate("gatehouse_calls_total", "tenant"), unit="reqps"),
        panel("Calls a second, by backend", rate("gatehouse_calls_total", "backend"), unit="reqps"),
        panel(
            "The gateway's own time, by stage (p95)",
            (
                "histogram_quantile(0.95, sum by (le, stage) (rate(gatehouse_stage_duration_seconds_bucket"
                '{stage!="dispatch"}[$__rate_interval])))',
                "{{stage}}",
            ),
            unit="s",
        ),
        panel("Event-loop lag", ("max by (instance) (gatehouse_event_loop_lag_seconds)", "{{instance}}"), unit="s"),
        panel(
            "Under way",
            ("sum(gatehouse_calls_running)", "calls"),
            ("sum(gatehouse_streams)", "streams"),
            ("sum(gatehouse_sessions)", "sessions"),
            ("sum(gatehouse_parked_calls)", "parked calls"),
        ),
        panel(
            "The process",
            ("max by (instance) (process_resident_memory_bytes)", "memory {{instance}}"),
            unit="bytes",
        ),
        panel("Audit records that wait", ("max(gatehouse_audit_waiting)", "waiting")),
        panel("Telemetry that was dropped", rate("gatehouse_telemetry_dropped_total", "signal")),
        traces("Slow calls", '{resource.service.name="gatehouse" && duration > 1s}'),
    )


def tenant() -> Json:
    chosen = '{tenant="$tenant"}'
    return dashboard(
        "tenant",
        "Gatehouse: a tenant",
        panel("Calls a second, by outcome", rate("gatehouse_calls_total", "outcome", chosen), unit="reqps"),
        panel("How long calls take", *quantiles("gatehouse_call_duration_seconds", chosen), unit="s"),
        panel("Calls a second, by backend", rate("gatehouse_calls_total", "backend", chosen), unit="reqps"),
        panel("Calls a second, by tool", rate("gatehouse_calls_total", "tool", chosen), unit="reqps"),
        panel("Refused because of limits", rate("gatehouse_limit_refusals_total", "tenant", chosen), unit="reqps"),
        traces("Its failed calls", '{span.gatehouse.tenant="$tenant" && status=error}'),
        variables=[variable("tenant", "gatehouse_calls_total")],
    )


def backend() -> Json:
    chosen = '{backend="$backend"}'
    return dashboard(
        "backend",
        "Gatehouse: a backend",
        panel("State", (f"max by (state) (gatehouse_backend_state{chosen})", "{{state}}")),
        panel("Breaker: 0 closed, 1 half open, 2 open", (f"max(gatehouse_breaker_state{chosen})", "breaker")),
        panel("Calls a second, by outcome", rate("gatehouse_calls_total", "outcome", chosen), unit="reqps"),
        panel("How long its server takes", *quantiles("mcp_client_operation_duration_seconds", chosen), unit="s"),
        panel("How long calls wait for a place", *quantiles("gatehouse_queue_wait_seconds", chosen), unit="s"),
        panel(
            "Calls under way and waiting",
            (f"sum(gatehouse_backend_calls_running{chosen})", "under way"),
            (f"sum(gatehouse_backend_calls_waiting{chosen})", "waiting"),
        ),
        panel("Age of its lists", (f"max(gatehouse_catalogue_age_seconds{chosen})", "age"), unit="s"),
        panel("Studios and editors connected", (f"sum(gatehouse_bridge_peers{chosen})", "peers")),
        traces("Its slow and failed calls", '{span.gatehouse.namespace="$backend" && (status=error || duration > 1s)}'),
        variables=[variable("backend", "gatehouse_backend_state")],
    )


def tool() -> Json:
    chosen = '{tool="$tool"}'
    named = '{gen_ai_tool_name="$tool"}'
    return dashboard(
        "tool",
        "Gatehouse: a tool",
        panel("Calls a second, by outcome", rate("gatehouse_calls_total", "outcome", chosen), unit="reqps"),
        panel("How long it takes", *quantiles("mcp_server_operation_duration_seconds", named), unit="s"),
        panel("Calls a second, by tenant", rate("gatehouse_calls_total", "tenant", chosen), unit="reqps"),
        panel("Its errors", rate("mcp_server_operation_duration_seconds_count", "error_type", named), unit="reqps"),
        traces("Its slow and failed calls", '{span.gen_ai.tool.name="$tool" && (status=error || duration > 1s)}'),
        variables=[variable("tool", "gatehouse_calls_total")],
    )


def errors() -> Json:
    return dashboard(
        "errors",
        "Gatehouse: errors",
        panel(
            "Part of the calls that fails",
            (
                f"sum(rate(gatehouse_calls_total{{{_FAILED}}}[$__rate_interval]))"
                " / sum(rate(gatehouse_calls_total[$__rate_interval]))",
                "failed",
            ),
            unit="percentunit",
        ),
        panel("Failures by kind", rate("gatehouse_calls_total", "outcome", '{outcome!="ok"}'), unit="reqps"),
        panel("Failures by backend", rate("gatehouse_calls_total", "backend", f"{{{_FAILED}}}"), unit="reqps"),
        panel("Failures by tool", rate("gatehouse_calls_total", "tool", f"{{{_FAILED}}}"), unit="reqps"),
        panel("Denied, by tenant", rate("gatehouse_calls_total", "tenant", '{outcome="denied"}'), unit="reqps"),
        panel(
            "What remote servers answered",
            rate("mcp_client_operation_duration_seconds_count", "error_type", '{error_type!=""}'),
            unit="reqps",
        ),
        traces("Failed calls", '{resource.service.name="gatehouse" && status=error}'),
    )


def dashboard(name: str, title: str, *panels: Json, variables: list[Json] | None = None) -> Json:
    x = y = 0
    placed: list[Json] = []
    for number, each in enumerate(panels, 1):
        wide = each["gridPos"]["w"]
        if x + wide > 24:
            x, y = 0, y + 8
        placed.append({**each, "id": number, "gridPos": {**each["gridPos"], "x": x, "y": y}})
        x += wide
    return {
        "uid": f"gatehouse-{name}",
        "title": title,
        "tags": ["gatehouse"],
        "schemaVersion": 41,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables or []},
        "links": [{"type": "dashboards", "tags": ["gatehouse"], "title": "Gatehouse", "keepTime": True}],
        "panels": placed,
    }


ALL: Final = {"overview": overview, "tenant": tenant, "backend": backend, "tool": tool, "errors": errors}


def text(name: str) -> str:
    return json.dumps(ALL[name](), indent=1) + "\n"


if __name__ == "__main__":
    for each in ALL:
        (FOLDER / f"{each}.json").write_text(text(each))
