"""Parsing of engine output: errors and warnings, without harmless notices."""

from backends.godot.engine.messages import parse_errors, parse_messages

LEAKS = [
    'WARNING: 3 RIDs of type "CanvasItem" were leaked.',
    "   at: _free_rids (servers/rendering/renderer_canvas_cull.cpp:2692)",
    "ERROR: 2 RID allocations of type 'P12GodotBody2D' were leaked at exit.",
    "WARNING: ObjectDB instances leaked at exit (run with --verbose for details).",
    "ERROR: 1 resources still in use at exit (run with --verbose for details).",
]


def test_leak_notices_are_not_failures() -> None:
    assert parse_messages(LEAKS) == []


def test_error_has_file_and_line() -> None:
    lines = [
        "SCRIPT ERROR: Parse Error: Expected parameter name.",
        "          at: GDScript::reload (res://bad.gd:3)",
        "USER WARNING: careful",
        *LEAKS,
    ]
    error, warning = parse_messages(lines)
    assert error.as_json() == {
        "severity": "error", "message": "Parse Error: Expected parameter name.", "file": "res://bad.gd", "line": 3,
    }  # fmt: skip
    assert (warning.severity, warning.text) == ("warning", "careful")
    assert parse_errors(lines) == [error]
