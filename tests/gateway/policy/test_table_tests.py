"""The shipped tables hit every policy, and notice the loss of any one of them."""

from pathlib import Path

import pytest

from gateway.policy.active_policies import load
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.policy.table_tests import run_tables
from tests.gateway.policy.folders import a_folder


def test_every_shipped_row_holds_and_every_shipped_policy_is_hit_and_missed() -> None:
    report = run_tables(SHIPPED)
    assert report.mistakes == ()
    assert report.policies == len(load(SHIPPED).default.notes)


@pytest.mark.parametrize("id", sorted(load(SHIPPED).default.notes))
def test_deleting_any_one_policy_makes_a_row_fail(id: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    for file in folder.rglob("*.cedar"):
        parts = file.read_text().split("\n@id(")
        kept = [part for part in parts if not part.startswith(f'"{id}")')]
        file.write_text("\n@id(".join(kept))
    assert id not in load(folder).default.notes
    assert run_tables(folder).mistakes


def test_a_policy_without_a_row_is_named(tmp_path: Path) -> None:
    grants = (SHIPPED / "default/10-grants.cedar").read_text()
    idle = '\n@id("idle") forbid (principal == Gw::User::"nobody", action, resource);'
    assert run_tables(a_folder(tmp_path, grants + idle)).mistakes == ("idle: no row is decided by it",)


def test_a_row_that_does_not_hold_says_what_it_got(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    (folder / "tests/more.yaml").write_text(
        "- {name: wrong, tool: {id: lab.x, effect: 3}, expect: allow, by: [grant.call]}"
    )
    (mistake,) = run_tables(folder).mistakes
    assert "tests/more.yaml: wrong: expected allow by grant.call, got approval by approval.destructive" in mistake


def test_a_row_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    (folder / "tests/more.yaml").write_text("- {name: x, expect: perhaps, by: []}")
    with pytest.raises(InvalidPolicies, match="row 1"):
        run_tables(folder)
