"""Spans in order, whatever their parents say."""

from typing import Any

from gateway.console.call import stages, waterfall
from gateway.telemetry.trace_store import StoredSpan, nested


def span(id: str, parent: str = "", **more: Any) -> StoredSpan:
    attributes = {"gatehouse.stage.trace": 0.001, "gatehouse.stage.dispatch": 0.003}
    given = {"kind": "server", "started": 0, "ended": 4_000_000, "error": None, "attributes": attributes, **more}
    return StoredSpan("t", id, parent, "c", "acme", f"tools/call {id}", **given)


def test_children_stand_below_their_parents() -> None:
    spans = [span("a"), span("b", "a"), span("c", "b"), span("d", "a"), span("e", "elsewhere")]
    assert [(each.span_id, depth) for each, depth in nested(spans)] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("d", 1),
        ("e", 0),
    ]


def test_a_circle_of_parents_is_shown_once_and_ends() -> None:
    spans = [span("a", "b"), span("b", "a"), span("c", "c")]
    assert sorted(each.span_id for each, _ in nested(spans)) == ["a", "b", "c"]


def test_what_clients_chose_is_text_in_it() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    shown = waterfall([span("a", error=hostile, attributes={"mcp.resource.uri": hostile, hostile: 1})])
    assert "<img" not in shown
    assert shown.count("&lt;img") == 3


def test_the_gateways_own_time_is_shown_stage_by_stage() -> None:
    shown = stages(span("a"))
    assert shown is not None
    assert "25 %" in shown
    assert "75 %" in shown
    assert stages(None) is None
    assert stages(span("a", attributes={})) is None


def test_a_modules_work_says_what_it_was_in_few_words() -> None:
    about = {"gatehouse.namespace": "lab", "lab.scope": "docs", "lab.run_id": "r" * 40, "laboratory": "no"}
    work = span("a", kind="internal", attributes=about)
    assert work.said == [("scope", "docs")]
    shown = waterfall([work, span("b", "a", kind="internal", attributes={**about, "mcp.method.name": "tools/call"})])
    assert shown.count("scope docs") == 1
    assert shown.count("a module&#x27;s work") + shown.count("a module's work") == 1
    assert shown.count("made by a module") == 1
