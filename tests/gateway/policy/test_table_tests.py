"""The table tests of the default policies cover every policy and detect the deletion of any one."""

from pathlib import Path

import pytest

from gateway.policy.active_policies import load
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.policy.table_tests import run_tables
from tests.gateway.policy.folders import policy_folder


def test_default_tables_pass_and_cover_every_policy() -> None:
    report = run_tables(SHIPPED)
    assert report.problems == ()
    assert report.policies == len(load(SHIPPED).default.notes)


@pytest.mark.parametrize("id", sorted(load(SHIPPED).default.notes))
def test_deleting_any_one_policy_makes_a_row_fail(id: str, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    for file in folder.rglob("*.cedar"):
        parts = file.read_text().split("\n@id(")
        kept = [part for part in parts if not part.startswith(f'"{id}")')]
        file.write_text("\n@id(".join(kept))
    assert id not in load(folder).default.notes
    assert run_tables(folder).problems


def test_policy_without_a_row_is_reported(tmp_path: Path) -> None:
    grants = (SHIPPED / "default/10-grants.cedar").read_text()
    idle = '\n@id("idle") forbid (principal == Gw::User::"unused", action, resource);'
    assert run_tables(policy_folder(tmp_path, grants + idle)).problems == ("idle: no row covers this policy",)


def test_failing_row_reports_the_actual_outcome(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    (folder / "tests/more.yaml").write_text(
        "- {name: wrong, tool: {id: lab.x, effect: 3}, expect: allow, by: [grant.call]}"
    )
    (problem,) = run_tables(folder).problems
    assert "tests/more.yaml: wrong: expected allow by grant.call, got approval by approval.destructive" in problem


def test_malformed_row_is_rejected(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path)
    (folder / "tests/more.yaml").write_text("- {name: x, expect: perhaps, by: []}")
    with pytest.raises(InvalidPolicies, match="row 1"):
        run_tables(folder)
