"""The page of one call: its facts, the policy decision, the span waterfall and the time of each stage."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from gateway.console import charts
from gateway.console.components import call_columns, call_rows, card, copyable, facts, table
from gateway.console.format import duration, effect, outcome, percent, plural, principal_name, timestamp
from gateway.console.html import Child, Html, h, markup
from gateway.console.page import ConsolePage, PageRequest
from gateway.console.policy_check import explanation
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind
from gateway.state.call_history import CallFilter, VisibleCall
from gateway.telemetry.trace_store import StoredLogLine, StoredSpan, find_log_lines, find_spans, in_tree_order

_KINDS: Final = {"server": "client request", "client": "upstream request", "internal": "internal call"}
_MAX_INDENT: Final = 6
_STAGE_COLOURS: Final = 6


async def call(request: PageRequest, id: str) -> ConsolePage:
    """Raises `Fault(NOT_FOUND)` alike for an unknown ID and for a call of a tenant the operator may not see."""
    found = await request.sources.calls.find(CallFilter(tenant=request.tenant, id=id, limit=50))
    chosen = _select_call(request, found)
    trace_id = chosen.trace_id if chosen is not None and chosen.trace_id else id
    spans = await asyncio.to_thread(find_spans, request.sources.trace_store, trace_id, request.tenant)
    if chosen is None and not spans:
        raise Fault(Kind.NOT_FOUND, "No call with this ID is stored here. Search on the Calls page.")
    own = _gateway_span(spans, chosen, id)
    title = (chosen.target or chosen.method) if chosen is not None else spans[0].name
    body = markup(
        h.p(h.a("Calls", href=request.url("calls")), " / ", h.code(id), class_="breadcrumb"),
        h.h1(title, " ", outcome(chosen.outcome) if chosen is not None else None),
        h.div(
            card("Call", _facts(request, chosen, own, id), id="facts"),
            card("Outcome", _decision_facts(request, chosen, own), id="outcome"),
            class_="columns",
        ),
        card("Timing", *_timing(spans, own), id="time"),
        _log_card(request, await _read_log_lines(request, spans)),
        _related_calls(request, found, chosen),
    )
    return ConsolePage(title, body, "calls")


def _select_call(request: PageRequest, found: Sequence[VisibleCall]) -> VisibleCall | None:
    """The call that finished at the requested time; else the first that started, which contains the others."""
    at = request.number("at", 0, 0, 1e12)
    exact = [each for each in found if abs(each.at - at) < 1e-3]
    return next(iter(exact), None) or min(found, key=lambda each: each.at - each.duration_us / 1e6, default=None)


def _gateway_span(spans: Sequence[StoredSpan], chosen: VisibleCall | None, id: str) -> StoredSpan | None:
    candidates = [
        span
        for span in spans
        if span.kind != "client" and (chosen is None or span.correlation_id == chosen.correlation_id)
    ]
    if chosen is None:
        return next(iter(candidates), None)
    # Calls with the same correlation ID differ in their tool and in the time they finished.
    matching = [span for span in candidates if chosen.target in (span.attributes.get("gen_ai.tool.name"), "")]
    return min(matching or candidates, key=lambda span: abs(span.ended / 1e9 - chosen.at), default=None)


def _facts(request: PageRequest, chosen: VisibleCall | None, own: StoredSpan | None, id: str) -> Html:
    attributes = own.attributes if own is not None else {}
    trace = chosen.trace_id if chosen is not None else own.trace_id if own is not None else ""
    pairs: list[tuple[str, Child]] = []
    if chosen is not None:
        tool = chosen.method == "tools/call" and chosen.effect is not None
        pairs += [
            ("Method", chosen.method),
            (
                "Tool" if chosen.method == "tools/call" else "Target",
                h.a(chosen.target, href=request.url("tools", chosen.target)) if tool else chosen.target,
            ),
            ("Principal", principal_name(chosen.principal)),
            ("Tenant", chosen.tenant),
            ("Actor", chosen.actor),
            ("Finished", timestamp(chosen.at, with_date=True)),
            ("Duration", duration(chosen.duration_us)),
            ("Effect", effect(chosen.effect)),
        ]
    pairs += [
        ("Protocol", attributes.get("mcp.protocol.version")),
        ("Endpoint", attributes.get("gatehouse.endpoint")),
        ("Trace ID", _trace(request, trace)),
    ]
    return markup(facts(pairs), copyable(id, "correlation ID"))


def _trace(request: PageRequest, trace: str) -> Child:
    if not trace:
        return None
    if request.sources.trace_url is None:
        return h.code(trace)
    return h.a(h.code(trace), href=request.sources.trace_url.replace("{trace_id}", trace), rel="noreferrer external")


def _decision_facts(request: PageRequest, chosen: VisibleCall | None, own: StoredSpan | None) -> Html:
    attributes = own.attributes if own is not None else {}
    stage = list(_stage_names(attributes))[-1:]
    failure = own.error if own is not None else None
    decision = chosen.decision if chosen is not None else str(attributes.get("gatehouse.policy.decision", ""))
    policies = chosen.policies if chosen is not None else str(attributes.get("gatehouse.policy.ids", ""))
    rows: list[tuple[str, Child]] = [
        ("Decision", _decision(decision)),
        (
            "Policies",
            h.span((h.code(each) for each in policies.split(",") if each), class_="codes") if policies else None,
        ),
        ("Approved", chosen.approved if chosen is not None else None),
        ("Error", h.span(failure, class_="bad") if failure else None),
        ("Error type", attributes.get("error.type")),
        ("Failed in stage", stage[0] if stage and _has_failed(chosen) else None),
    ]
    return markup(facts(rows), _current_decision(request, chosen))


def _has_failed(chosen: VisibleCall | None) -> bool:
    return chosen is not None and chosen.outcome_class != "ok"


def _decision(decision: str) -> Child:
    labels = {"allow": "allowed", "deny": "denied", "ask": "approval required", "none": "not evaluated"}
    return labels.get(decision, decision)


def _stage_names(attributes: Json) -> Iterator[str]:
    return (key.removeprefix("gatehouse.stage.") for key in attributes if key.startswith("gatehouse.stage."))


def _current_decision(request: PageRequest, chosen: VisibleCall | None) -> Html | None:
    """The decision of the current policies for the recorded caller."""
    if chosen is None or chosen.method != "tools/call" or chosen.effect is None:
        return None
    caller = _caller(chosen)
    result = request.sources.check_policy(caller, chosen.target, {}, bool(chosen.approved), request.tenant is not None)
    kind, subject = caller.kind, caller.subject
    check_url = request.url(
        "why", subject=subject, kind=kind, tool=chosen.target, of=caller.tenant if request.tenant is None else "",
        groups=" ".join(sorted(caller.groups)), scopes=" ".join(sorted(caller.scopes)),
    )  # fmt: skip
    return h.div(
        h.h3("Decision with current policies"),
        explanation(result),
        h.p(h.a("Check another caller", href=check_url)),
        class_="inset",
    )


def _caller(chosen: VisibleCall) -> Caller:
    try:
        context = cast("dict[str, Any]", json.loads(chosen.context or "{}"))
    except ValueError:
        context = {}
    kind, _, subject = chosen.principal.partition("/")[2].partition(":")
    groups, scopes = (frozenset(map(str, context.get(name) or ())) for name in ("groups", "scopes"))
    return Caller(chosen.tenant, subject, "service" if kind == "service" else "user", groups, scopes)


def _timing(spans: Sequence[StoredSpan], own: StoredSpan | None) -> list[Html | None]:
    if not spans:
        return [
            h.p(
                "No trace is stored for this call. Traces of failed, refused and slow calls are always stored; of "
                "other calls, the share set in telemetry.traces.share.",
                class_="empty",
            )
        ]
    return [waterfall(spans), stages(own)]


async def _read_log_lines(request: PageRequest, spans: Sequence[StoredSpan]) -> list[StoredLogLine]:
    """Only for operators of all tenants: log records may contain details of the host."""
    ids = [span.span_id for span in spans]
    return (
        await asyncio.to_thread(lambda: find_log_lines(request.sources.trace_store, spans=ids))
        if request.all_tenants and ids
        else []
    )


def _log_card(request: PageRequest, logged: Sequence[StoredLogLine]) -> Html | None:
    if not logged:
        return None
    rows: list[list[Child]] = [
        [
            timestamp(line.started / 1e9),
            line.level,
            markup(
                line.message, h.details(h.summary("Cause"), h.pre(line.cause, tabindex="0")) if line.cause else None
            ),
        ]
        for line in logged
    ]
    return card("Log", table("Log records", ("Time", "Level", "Message"), rows, ""), id="log")


def _related_calls(request: PageRequest, found: Sequence[VisibleCall], chosen: VisibleCall | None) -> Html | None:
    others = [each for each in found if each is not chosen]
    if not others:
        return None
    rows = call_rows(request, others)
    for row, each in zip(rows, others, strict=True):
        row[2] = h.a(each.target or each.method, href=request.url("calls", each.correlation_id, at=f"{each.at:.6f}"))
    listed = table("Calls with the same correlation ID", call_columns(request), rows, "", "calls")
    return card("Same correlation ID", listed, id="others")


def waterfall(spans: Sequence[StoredSpan]) -> Html:
    """A table of spans, each below its parent, with a bar for its start and duration."""
    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    whole = max(1, last - first)
    rows = (_row(span, depth, first, whole) for span, depth in in_tree_order(spans))
    columns = ("Span", "Start", "Duration", "Timeline")
    return h.table(
        h.caption(f"{plural(len(spans), 'span')} in {duration(whole / 1000)}", class_="dim"),
        h.thead(h.tr(h.th(column, scope="col") for column in columns)),
        h.tbody(rows),
        class_="waterfall",
    )


def _row(span: StoredSpan, depth: int, first: int, whole: int) -> Html:
    start, length = (span.started - first) / whole, (span.ended - span.started) / whole
    kind = "failed" if span.error is not None else "accent" if span.kind == "client" else "ok"
    segments = [(start, length, kind)]
    if (queued := float(span.attributes.get("gatehouse.queued") or 0)) > 0:
        segments.insert(0, (max(0.0, start - queued * 1e9 / whole), queued * 1e9 / whole, "none"))
    details = ", ".join(f"{name} {value}" for name, value in span.short_attributes)
    name = h.div(
        h.span(_span_kind(span), class_="kind"),
        h.strong(span.name),
        h.span(details, class_="dim") if details else None,
        h.span(span.error, class_="bad") if span.error else None,
        class_=f"indent d{min(depth, _MAX_INDENT)}",
    )
    return h.tr(
        h.td(name, h.details(h.summary("Attributes"), _attributes(span))),
        h.td(duration((span.started - first) / 1000), class_="num after", data_column="Start"),
        h.td(duration((span.ended - span.started) / 1000), class_="num"),
        h.td(charts.timeline(segments), class_="bar"),
    )


def _span_kind(span: StoredSpan) -> str:
    return "internal work" if span.is_work else _KINDS.get(span.kind, span.kind)


def _attributes(span: StoredSpan) -> Html:
    shown = {**span.attributes, "span id": span.span_id, "parent": span.parent_id or "none"}
    return h.dl(
        (
            h.div(h.dt(key), h.dd(value if isinstance(value, str) else json.dumps(value)))
            for key, value in shown.items()
        ),
        class_="attributes",
    )


def stages(own: StoredSpan | None) -> Html | None:
    """The time of each gateway stage, from the attributes of the gateway's span."""
    if own is None:
        return None
    prefix = "gatehouse.stage."
    times = {key.removeprefix(prefix): float(value) for key, value in own.attributes.items() if key.startswith(prefix)}
    whole = sum(times.values())
    if not whole:
        return None
    start, segments, rows = 0.0, list[tuple[float, float, str]](), list[list[Child]]()
    for at, (name, seconds) in enumerate(times.items()):
        tone = f"tone t{at % _STAGE_COLOURS}"
        segments.append((start / whole, seconds / whole, tone))
        start += seconds
        if seconds >= 1e-6:
            share = charts.with_bar(percent(seconds, whole), seconds, whole)
            rows.append([h.span(name, class_=f"key {tone}"), duration(seconds * 1e6), share])
    return markup(
        h.h3("Time per stage"),
        charts.timeline(segments),
        table("Time per stage", ("Stage", "Time", "Share"), rows, "", "stages"),
    )
