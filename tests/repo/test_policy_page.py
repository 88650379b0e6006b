"""The recipes of the policy page are valid: each loads together with the shipped policies."""

import pytest
import yaml

from gateway.policy.active_policies import load
from gateway.policy.projection import parse_projections
from gateway.policy.table_tests import run_tables
from tests.gateway.policy.folders import policy_folder
from tests.repo.documents import ROOT, blocks

PAGE = ROOT / "docs" / "policy.md"
RECIPES = [block.text for block in blocks(PAGE) if block.language == "cedar"]
TEXTS = [block.text for block in blocks(PAGE) if block.language == "text"]
GRANTS = (ROOT / "policies" / "default" / "10-grants.cedar").read_text()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda text: text.split('"')[1])
def test_every_recipe_loads(recipe: str, tmp_path: object) -> None:
    folder = policy_folder(tmp_path, GRANTS + recipe, TEXTS[0])  # type: ignore[arg-type]
    assert recipe.split('"')[1] in load(folder).default.notes


def test_projection_and_table_test_of_the_page_are_valid(tmp_path: object) -> None:
    assert len(RECIPES) >= 5
    assert parse_projections(yaml.safe_load(TEXTS[0])).for_tool("payments.refund") is not None
    folder = policy_folder(tmp_path, GRANTS + RECIPES[0])  # type: ignore[arg-type]
    (folder / "tests" / "page.yaml").write_text(TEXTS[1].replace("tenant: acme", "tenant: default"))
    mistakes = [line for line in run_tables(folder).problems if "page.yaml" in line]
    assert mistakes == []
