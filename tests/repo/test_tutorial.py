"""docs/tutorial.md works as written: its files, and its commands in their order."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.repo.documents import ROOT, blocks, find_block
from tests.repo.test_readme import assert_documented_output, eventually

PAGE = ROOT / "docs" / "tutorial.md"
RULE = "policies/default/20-tickets.cedar"


def test_tutorial_runs_as_written(terminal: Callable[[Path], Any], tmp_path: Path) -> None:
    shell = terminal(tmp_path)
    before = {block.name: block for block in blocks(PAGE, "before")}
    assert list(before) == ["policies", "check", "serve"]
    assert_documented_output(PAGE, before["policies"], shell.run(before["policies"].text))
    for block in blocks(PAGE, "file"):
        if block.name != RULE:
            (tmp_path / block.name).write_text(block.text, "utf-8")
    assert_documented_output(PAGE, before["check"], shell.run(before["check"].text))
    with shell.serve(before["serve"].text) as served:
        steps = {block.name: block for block in blocks(PAGE, "step")}
        assert list(steps) == ["tools", "key", "why", "hidden", "audit"]
        # One shell for the steps that share the variable BOB.
        with_bob = f"{steps['key'].text.splitlines()[0]}\n"
        eventually(lambda: "tickets_close" in served.run("gatehouse tools --json").stdout)
        for name in ("tools", "key"):
            assert_documented_output(PAGE, steps[name], served.run(steps[name].text))
        (tmp_path / RULE).write_text(find_block(PAGE, "file", RULE).text, "utf-8")
        assert_documented_output(PAGE, steps["why"], served.run(steps["why"].text))
        hidden = with_bob + steps["hidden"].text
        eventually(lambda: "tickets_close" not in served.run(hidden).stdout)
        assert_documented_output(PAGE, steps["hidden"], served.run(hidden))
        assert_documented_output(PAGE, steps["audit"], served.run(steps["audit"].text))
        assert_trace_has_the_documented_spans(served)


def assert_trace_has_the_documented_spans(served: Any) -> None:
    records = json.loads(served.run("gatehouse audit list --json").stdout)
    call = next(each for each in records if each["target"] == "tickets.find")
    command = find_block(PAGE, "shell", "trace").text.split()[:-1]
    drawn: list[str] = served.run(" ".join([*command, call["correlation_id"]])).stdout.splitlines()
    shown = find_block(PAGE, "says", "trace").text.splitlines()
    assert [line.split()[:3] for line in drawn if "tools/call" in line] == [
        line.split()[:3] for line in shown if "tools/call" in line
    ]
    assert [line for line in drawn if "outcome=" in line] == [line for line in shown if "outcome=" in line]
