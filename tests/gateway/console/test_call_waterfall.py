"""The span waterfall and the stage times of the call page."""

from typing import Any

from gateway.console.call import stages, waterfall
from gateway.telemetry.trace_store import StoredSpan, in_tree_order


def span(id: str, parent: str = "", **more: Any) -> StoredSpan:
    attributes = {"gatehouse.stage.trace": 0.001, "gatehouse.stage.dispatch": 0.003}
    fields = {"kind": "server", "started": 0, "ended": 4_000_000, "error": None, "attributes": attributes, **more}
    return StoredSpan("t", id, parent, "c", "acme", f"tools/call {id}", **fields)


def test_children_follow_their_parents() -> None:
    spans = [span("a"), span("b", "a"), span("c", "b"), span("d", "a"), span("e", "elsewhere")]
    assert [(each.span_id, depth) for each, depth in in_tree_order(spans)] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("d", 1),
        ("e", 0),
    ]


def test_spans_in_a_parent_cycle_are_shown_once() -> None:
    spans = [span("a", "b"), span("b", "a"), span("c", "c")]
    assert sorted(each.span_id for each, _ in in_tree_order(spans)) == ["a", "b", "c"]


def test_client_supplied_text_is_escaped() -> None:
    hostile = "<img src=x onerror=alert(1)>"
    shown = waterfall([span("a", error=hostile, attributes={"mcp.resource.uri": hostile, hostile: 1})])
    assert "<img" not in shown
    assert shown.count("&lt;img") == 3


def test_gateway_time_is_shown_per_stage() -> None:
    shown = stages(span("a"))
    assert shown is not None
    assert "25 %" in shown
    assert "75 %" in shown
    assert stages(None) is None
    assert stages(span("a", attributes={})) is None


def test_internal_work_shows_its_short_attributes() -> None:
    about = {"gatehouse.namespace": "lab", "lab.scope": "docs", "lab.run_id": "r" * 40, "laboratory": "no"}
    work = span("a", kind="internal", attributes=about)
    assert work.short_attributes == [("scope", "docs")]
    shown = waterfall([work, span("b", "a", kind="internal", attributes={**about, "mcp.method.name": "tools/call"})])
    assert shown.count("scope docs") == 1
    assert shown.count("internal work") == 1
    assert shown.count("internal call") == 1
