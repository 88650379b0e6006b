"""The summary at the end of a test run names each missing program once, with the way to get it."""

from tests.prerequisites import HOW_TO_GET, summarize_missing


def test_each_missing_program_is_named_once_with_the_number_of_tests_and_the_way_to_get_it() -> None:
    reasons = ["Skipped: no Chromium", "Skipped: no Godot 4", "Skipped: no Chromium", "Skipped: not on this kernel"]
    assert summarize_missing(reasons) == [
        f"chromium is missing: 2 tests skipped; get it: {HOW_TO_GET['chromium']}",
        f"godot is missing: 1 test skipped; get it: {HOW_TO_GET['godot']}",
    ]
