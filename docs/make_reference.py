"""Generates `docs/api.md`, `docs/metrics.md` and `docs/policy-schema.md`: `python docs/make_reference.py`."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.edge.api.accounts import accounts_router
from gateway.edge.api.approvals import ApprovalDecision, approvals_router
from gateway.edge.api.backends import PREFIX, backends_router
from gateway.edge.api.calls import CallQuery, calls_router
from gateway.edge.api.policy import PolicyQuestion, PolicySubject, policy_router
from gateway.edge.api.usage import usage_router
from gateway.telemetry.metric_families import MetricFamily

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"

NOTE: Final = "<!-- Written by `python docs/make_reference.py`; change {}, not this page. -->"

# ---- the operator API ------------------------------------------------------------------------------------------------

API_HEAD: Final = f"""\
# Operator API

{NOTE.format("the models in `gateway/edge/api/`")}

The API reports what a gateway does, as JSON. It only reads, except for [approvals](approvals.md) and
[accounts](accounts.md). Every request needs a key or a token in `Authorization: Bearer …`, with the scope `mcp:admin`,
for approvals `mcp:approve`; every user may use the routes of their own accounts. An operator sees one tenant, that of
the credential; the operators that `console.organisation` lists see all tenants. With `server.ops_port` the API is
served on that port only. `limits.api` limits requests by IP address. Errors have the form of [Errors](errors.md).
`GET {PREFIX}/openapi.json` returns the OpenAPI document.

```sh
export ADMIN_KEY=$(gatehouse key create --service ops --scope mcp:admin)
curl -s -H "Authorization: Bearer $ADMIN_KEY" http://127.0.0.1:8080/api/v1/backends
```
"""

SUMMARIES: Final[Mapping[str, str]] = {
    "/policy/why": "Whether a call would be allowed, and by which policies. `gatehouse policy why --url` uses it",
    "/policy/tools": "The tools that a caller would see. `gatehouse tools --as` uses it with `--url`",
}
"""Summaries of the routes whose body FastAPI does not read."""

INPUTS: Final[Mapping[str, tuple[str, type[msgspec.Struct]]]] = {
    "/calls": ("query", CallQuery),
    "/policy/why": ("body", PolicyQuestion),
    "/policy/tools": ("body", PolicySubject),
    "/approvals/{id}": ("body", ApprovalDecision),
}
"""Parameters that msgspec decodes, by path."""


def api_page() -> str:
    return "\n".join([API_HEAD, *_api_sections()])


def api_paths() -> list[str]:
    return list(_openapi()["paths"])


def _openapi() -> dict[str, Any]:
    unused: Any = None
    app = FastAPI()
    for router in (
        backends_router(unused, unused),
        calls_router(unused, unused, unused, unused, unused),
        usage_router(unused, unused),
        policy_router(unused, unused, unused, unused),
        approvals_router(unused, unused, unused, unused, unused),
        accounts_router(unused, unused, unused, unused, unused),
    ):
        app.include_router(router)
    return get_openapi(title="Gatehouse operator API", version="1", routes=app.routes)


def _api_sections() -> Iterator[str]:
    document = _openapi()
    schemas: dict[str, Any] = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        short = path.removeprefix(PREFIX)
        for method, operation in methods.items():
            yield f"## `{method.upper()} {path}`\n"
            yield f"{SUMMARIES.get(short, operation.get('summary', ''))}.\n"
            yield from _inputs(
                short if method == "post" or INPUTS.get(short, ("query",))[0] == "query" else "", operation
            )
            answer = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
            if name := answer.get("$ref", "").rpartition("/")[2]:
                yield from _fields("Answer", schemas[name], schemas)


def _inputs(short: str, operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        (
            each["name"],
            _type(each["schema"]),
            "required" if each.get("required") else f"`{each['schema'].get('default')}`",
        )
        for each in operation.get("parameters", [])
    ]
    title = "query"
    if short in INPUTS:
        title, struct = INPUTS[short]
        (schema,) = msgspec.json.schema_components([struct])[1].values()
        required = schema.get("required", [])
        rows = [
            (
                name,
                _type(each),
                "required" if name in required else f"`{msgspec.json.encode(each.get('default')).decode()}`",
            )
            for name, each in schema["properties"].items()
        ]
    if rows:
        yield f"| {title} | type | default |\n|---|---|---|"
        yield from (f"| `{name}` | {kind} | {default} |" for name, kind, default in rows)
        yield ""


def _fields(title: str, schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Yield the table of an object, then those of the objects in it."""
    yield f"| {title} | type | description |\n|---|---|---|"
    inner: list[str] = []
    for name, each in schema["properties"].items():
        target = each.get("items", each).get("$ref", "").rpartition("/")[2]
        if target:
            inner.append(target)
        yield f"| `{name}` | {_type(each)} | {each.get('description', '')} |"
    yield ""
    for name in inner:
        yield from _fields(name, schemas[name], schemas)


def _json(value: Any) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if options := schema.get("anyOf"):
        return " or ".join(_type(each) for each in options)
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return name
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {'type': 'any'}))}"
    return str(schema.get("type", "any"))


# ---- metrics ---------------------------------------------------------------------------------------------------------

METRICS_HEAD: Final = f"""\
# Metrics

{NOTE.format("the help texts in `gateway/telemetry/` and `gateway/wiring/telemetry.py`")}

`GET /metrics` returns the metrics in the Prometheus text format; with `telemetry.otlp.url` they are also exported by
OTLP, under the names of the second column. [Trace and measure calls](observe.md) states who may read them,
[Alerting](alerting.md) which ones to watch. A gateway with several workers reports the sum of all workers, or the
largest value where the description states it.
"""

LABELS: Final[Mapping[str, str]] = {
    "gatehouse.calls": "tenant, backend, tool, method, outcome",
    "gatehouse.call.duration": "tenant, backend",
    "gatehouse.limit.refusals": "tenant",
    "gatehouse.stage.duration": "stage",
    "gatehouse.queue.wait": "backend",
    "gatehouse.backend.state": "backend, state",
    "gatehouse.breaker.state": "backend",
    "gatehouse.backend.calls.running": "backend",
    "gatehouse.backend.calls.waiting": "backend",
    "gatehouse.catalogue.age": "backend",
    "gatehouse.bridge.peers": "backend",
    "gatehouse.build.info": "version",
    "gatehouse.telemetry.sent": "signal",
    "gatehouse.telemetry.dropped": "signal",
    "gatehouse.telemetry.failures": "signal",
    "mcp.server.operation.duration": "those of OpenTelemetry's MCP conventions",
    "mcp.client.operation.duration": "those of OpenTelemetry's MCP conventions, and backend",
    "mcp.server.session.duration": "those of OpenTelemetry's MCP conventions",
    "mcp.client.session.duration": "those of OpenTelemetry's MCP conventions, and backend",
}


def metrics_page() -> str:
    rows = ["| Prometheus | OpenTelemetry | type | labels | description |", "|---|---|---|---|---|"]
    for family in sorted(metric_families(), key=lambda each: each.prometheus_name):
        largest = " Largest value of all workers." if family.aggregation == "max" else ""
        rows.append(
            f"| `{family.prometheus_name}` | `{family.name}` | {family.kind} | {LABELS.get(family.name, 'none')} "
            f"| {family.help}{largest} |"
        )
    return "\n".join([METRICS_HEAD, *rows, ""])


def metric_families() -> list[MetricFamily]:
    """Return the metrics that the code defines, without values."""
    found: list[MetricFamily] = []
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            values = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if node.func.id == "count_gauge" and values:
                found.append(MetricFamily(str(values[0]), str(values[1]), "gauge"))
            elif node.func.id == "MetricFamily" and len(values) > 2:
                named: dict[str, Any] = {
                    each.arg: each.value.value
                    for each in node.keywords
                    if each.arg and isinstance(each.value, ast.Constant)
                }
                arguments: list[Any] = list(values)
                found.append(MetricFamily(*arguments, **named))
    return found


# ---- the policy schema -----------------------------------------------------------------------------------------------

POLICY_HEAD: Final = f"""\
# Policy schema

{NOTE.format("`policies/schema.cedarschema` and the policies")}

Policies are written in [Cedar](https://docs.cedarpolicy.com). This schema lists the principals, resources, actions and
context that a policy can refer to; a request that does not match it is denied. [Policies](policy.md) has recipes.

- A user is `Gw::User::"alice"`, a service account `Gw::ServiceAccount::"nightly"`, both without their tenant.
- A tool has its canonical id, namespace and name with a dot: `Gw::Tool::"tickets.close"`.
- The effect of a tool is 0 (reads), 1 (writes idempotently), 2 (writes) or 3 (destroys, or sends data outside).
- `context.args` has the arguments that `args.yaml` lists, and no others.
"""


def policy_page() -> str:
    parts = [POLICY_HEAD, "## Schema\n", "```text\n" + _read("schema.cedarschema") + "```\n"]
    for title, path in (
        ("Guards that ship", "org/00-guards.cedar"),
        ("Grants that ship", "default/10-grants.cedar"),
    ):
        parts += [f"## {title}\n", f"`{path}`:\n", "```text\n" + _read(path) + "```\n"]
    return "\n".join(parts)


def _read(name: str) -> str:
    return (ROOT / "policies" / name).read_text("utf-8")


def pages() -> dict[Path, str]:
    return {
        DOCS / "api.md": api_page(),
        DOCS / "metrics.md": metrics_page(),
        DOCS / "policy-schema.md": policy_page(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
