"""Spans as a waterfall, and the gateway's own time stage by stage.

One call: what became of it, why, and where its time went.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from gateway.console import charts
from gateway.console.components import call_heads, call_rows, card, copyable, facts, table
from gateway.console.format import effect, many, moment, outcome, percent, took, who
from gateway.console.html import Child, Html, h, markup
from gateway.console.policy_check import explained
from gateway.console.queries import ConsolePage, ConsoleQueries
from gateway.contract import Caller, Json
from gateway.errors import Fault, Kind
from gateway.state.call_history import CallFilter, VisibleCall
from gateway.telemetry.trace_store import StoredLogLine, StoredSpan, find, lines, nested

_KINDS: Final = {"server": "request", "client": "remote server", "internal": "made by a module"}

_MOST_DEEP: Final = 12

_TONES: Final = 6


def waterfall(spans: Sequence[StoredSpan]) -> Html:
    """Each span below its parent, as a bar of where it began and how long it was."""
    first, last = min(span.started for span in spans), max(span.ended for span in spans)
    whole = max(1, last - first)
    rows = (_row(span, depth, first, whole) for span, depth in nested(spans))
    heads = ("Span", "Begins after", "Takes", "Picture")
    return h.table(
        h.caption(f"{many(len(spans), 'span')} in {took(whole / 1000)}", class_="dim"),
        h.thead(h.tr(h.th(head, scope="col") for head in heads), class_="unseen"),
        h.tbody(rows),
        class_="waterfall",
    )


def _row(span: StoredSpan, depth: int, first: int, whole: int) -> Html:
    begins, long = (span.started - first) / whole, (span.ended - span.started) / whole
    kind = "failed" if span.error is not None else "line" if span.kind == "client" else "ok"
    pieces = [(begins, long, kind)]
    if (queued := float(span.attributes.get("gatehouse.queued") or 0)) > 0:
        pieces.insert(0, (max(0.0, begins - queued * 1e9 / whole), queued * 1e9 / whole, "none"))
    name = h.div(
        h.span(_kind(span), class_="kind"),
        h.strong(span.name),
        h.span(", ".join(f"{name} {value}" for name, value in span.said), class_="dim") if span.said else None,
        h.span(span.error, class_="bad") if span.error else None,
        class_=f"deep d{min(depth, _MOST_DEEP)}",
    )
    told = h.details(h.summary("All that is told of it"), _attributes(span))
    return h.tr(
        h.td(name, told),
        h.td(took((span.started - first) / 1000), class_="num after", data_head="after"),
        h.td(took((span.ended - span.started) / 1000), class_="num"),
        h.td(charts.strip(pieces), class_="bar"),
    )


def _kind(span: StoredSpan) -> str:
    return "a module's work" if span.is_work else _KINDS.get(span.kind, span.kind)


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
    """The gateway's own time."""
    if own is None:
        return None
    prefix = "gatehouse.stage."
    times = {key.removeprefix(prefix): float(value) for key, value in own.attributes.items() if key.startswith(prefix)}
    whole = sum(times.values())
    if not whole:
        return None
    begins, pieces, rows = 0.0, list[tuple[float, float, str]](), list[list[Child]]()
    for at, (name, seconds) in enumerate(times.items()):
        tone = f"tone t{at % _TONES}"
        pieces.append((begins / whole, seconds / whole, tone))
        begins += seconds
        if seconds >= 1e-6:
            share = h.span(percent(seconds, whole), charts.share(seconds, whole), class_="took")
            rows.append([h.span(name, class_=f"key {tone}"), took(seconds * 1e6), share])
    return markup(
        h.h3("Stage by stage"),
        charts.strip(pieces),
        table("Time in each stage", ("Stage", "Time", "Share"), rows, "", "stages"),
    )


async def call(look: ConsoleQueries, id: str) -> ConsolePage:
    """Raises `Fault(NOT_FOUND)` also for what another tenant called: the two are alike."""
    found = await look.sources.calls.find(CallFilter(tenant=look.tenant, id=id, limit=50))
    chosen = _chosen(look, found)
    wanted = chosen.trace_id if chosen is not None and chosen.trace_id else id
    spans = await asyncio.to_thread(find, look.sources.store, wanted, look.tenant)
    if chosen is None and not spans:
        raise Fault(Kind.NOT_FOUND, "No call of that id was kept here.")
    own = _own_span(spans, chosen, id)
    title = (chosen.target or chosen.method) if chosen is not None else spans[0].name
    body = markup(
        h.p(h.a("Calls", href=look.to("calls")), " / ", h.code(id), class_="path"),
        h.h1(title, " ", outcome(chosen.outcome) if chosen is not None else None),
        h.div(
            card("What it was", _facts(look, chosen, own, id), id="facts"),
            card("Why", _why(look, chosen, own), id="why"),
            class_="two",
        ),
        card("Where its time went", *_time(spans, own), id="time"),
        _logs(look, await _lines(look, spans)),
        _others(look, found, chosen),
    )
    return ConsolePage(title, body, "calls")


def _chosen(look: ConsoleQueries, found: Sequence[VisibleCall]) -> VisibleCall | None:
    """The one that was asked for; else the one that began first, within which the others were made."""
    at = look.number("at", 0, 0, 1e12)
    exact = [each for each in found if abs(each.at - at) < 1e-3]
    return next(iter(exact), None) or min(found, key=lambda each: each.at - each.duration_us / 1e6, default=None)


def _own_span(spans: Sequence[StoredSpan], chosen: VisibleCall | None, id: str) -> StoredSpan | None:
    mine = [
        span
        for span in spans
        if span.kind != "client" and (chosen is None or span.correlation_id == chosen.correlation_id)
    ]
    if chosen is None:
        return next(iter(mine), None)
    # Two calls of one id are told apart by what they were and when they ended.
    named = [span for span in mine if chosen.target in (span.attributes.get("gen_ai.tool.name"), "")] or mine
    return min(named, key=lambda span: abs(span.ended / 1e9 - chosen.at), default=None)


def _facts(look: ConsoleQueries, chosen: VisibleCall | None, own: StoredSpan | None, id: str) -> Html:
    told = own.attributes if own is not None else {}
    trace = chosen.trace_id if chosen is not None else own.trace_id if own is not None else ""
    pairs: list[tuple[str, Child]] = []
    if chosen is not None:
        tool = chosen.method == "tools/call" and chosen.effect is not None
        pairs += [
            ("Asked", chosen.method),
            ("Of", h.a(chosen.target, href=look.to("tools", chosen.target)) if tool else chosen.target),
            ("Who", who(chosen.principal)),
            ("Tenant", chosen.tenant),
            ("Actor", chosen.actor),
            ("Ended", moment(chosen.at, day=True)),
            ("Took", took(chosen.duration_us)),
            ("Effect", effect(chosen.effect)),
        ]
    pairs += [
        ("Protocol", told.get("mcp.protocol.version")),
        ("Address", told.get("gatehouse.endpoint")),
        ("Trace", _trace(look, trace)),
    ]
    return markup(facts(pairs), copyable(id, "the correlation id"))


def _trace(look: ConsoleQueries, trace: str) -> Child:
    if not trace:
        return None
    if look.sources.trace_url is None:
        return h.code(trace)
    return h.a(h.code(trace), href=look.sources.trace_url.replace("{trace_id}", trace), rel="noreferrer external")


def _why(look: ConsoleQueries, chosen: VisibleCall | None, own: StoredSpan | None) -> Html:
    told = own.attributes if own is not None else {}
    stage = list(_stage_names(told))[-1:]
    failure = own.error if own is not None else None
    decision = chosen.decision if chosen is not None else str(told.get("gatehouse.policy.decision", ""))
    policies = chosen.policies if chosen is not None else str(told.get("gatehouse.policy.ids", ""))
    rows: list[tuple[str, Child]] = [
        ("Decision", _decision(decision)),
        ("By", h.span((h.code(each) for each in policies.split(",") if each), class_="codes") if policies else None),
        ("Approved", chosen.approved if chosen is not None else None),
        ("Error", h.span(failure, class_="bad") if failure else None),
        ("Error type", told.get("error.type")),
        ("Ended in stage", stage[0] if stage and failure_shown(chosen) else None),
    ]
    return markup(facts(rows), _now(look, chosen))


def failure_shown(chosen: VisibleCall | None) -> bool:
    return chosen is not None and chosen.kind != "ok"


def _decision(word: str) -> Child:
    return {"allow": "allowed", "deny": "denied", "ask": "asked for approval", "none": "policy was not asked"}.get(
        word, word
    )


def _stage_names(attributes: Json) -> Iterator[str]:
    return (key.removeprefix("gatehouse.stage.") for key in attributes if key.startswith("gatehouse.stage."))


def _now(look: ConsoleQueries, chosen: VisibleCall | None) -> Html | None:
    """What policy would say now, of the caller as it was then."""
    if chosen is None or chosen.method != "tools/call" or chosen.effect is None:
        return None
    caller = _caller(chosen)
    answer = look.sources.why(caller, chosen.target, {}, bool(chosen.approved), look.tenant is not None)
    kind, subject = caller.kind, caller.subject
    asked = look.to(
        "why", subject=subject, kind=kind, tool=chosen.target, of=caller.tenant if look.tenant is None else "",
        groups=" ".join(sorted(caller.groups)), scopes=" ".join(sorted(caller.scopes)),
    )  # fmt: skip
    return h.div(
        h.h3("As policies stand now"), explained(answer), h.p(h.a("Ask for others", href=asked)), class_="inset"
    )


def _caller(chosen: VisibleCall) -> Caller:
    try:
        context = cast("dict[str, Any]", json.loads(chosen.context or "{}"))
    except ValueError:
        context = {}
    kind, _, subject = chosen.principal.partition("/")[2].partition(":")
    groups, scopes = (frozenset(map(str, context.get(name) or ())) for name in ("groups", "scopes"))
    return Caller(chosen.tenant, subject, "service" if kind == "service" else "user", groups, scopes)


def _time(spans: Sequence[StoredSpan], own: StoredSpan | None) -> list[Html | None]:
    if not spans:
        return [
            h.p(
                "This call was not kept as a trace. Failed, refused and slow ones always are, of the others the share "
                "that telemetry.traces.share says.",
                class_="empty",
            )
        ]
    return [waterfall(spans), stages(own)]


async def _lines(look: ConsoleQueries, spans: Sequence[StoredSpan]) -> list[StoredLogLine]:
    """Of the organisation's operators alone: a cause may tell of the machine."""
    ids = [span.span_id for span in spans]
    return await asyncio.to_thread(lambda: lines(look.sources.store, spans=ids)) if look.everywhere and ids else []


def _logs(look: ConsoleQueries, logged: Sequence[StoredLogLine]) -> Html | None:
    if not logged:
        return None
    rows: list[list[Child]] = [
        [
            moment(line.started / 1e9),
            line.level,
            markup(
                line.message, h.details(h.summary("Cause"), h.pre(line.cause, tabindex="0")) if line.cause else None
            ),
        ]
        for line in logged
    ]
    return card("Log", table("What was logged", ("When", "Level", "Message"), rows, ""), id="log")


def _others(look: ConsoleQueries, found: Sequence[VisibleCall], chosen: VisibleCall | None) -> Html | None:
    others = [each for each in found if each is not chosen]
    if not others:
        return None
    rows = call_rows(look, others)
    for row, each in zip(rows, others, strict=True):
        row[2] = h.a(each.target or each.method, href=look.to("calls", each.correlation_id, at=f"{each.at:.6f}"))
    return card("Others of this id", table("Other calls of this id", call_heads(look), rows, "", "calls"), id="others")
