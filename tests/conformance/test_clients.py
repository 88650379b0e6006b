"""Selection of the client scenarios on authorization and of the client for each."""

import yaml

from tests.conformance.clients import NOT_APPLICABLE, ScenarioRun, parse_scenarios

LIST = """\
Client scenarios (test against a client):
  - tools_call [2025-06-18,2025-11-25,2026-07-28]
  - auth/scope-step-up [2025-11-25,2026-07-28]
  - auth/client-credentials-jwt [extension]
  - auth/resource-mismatch [2026-07-28]
"""


def test_scenario_runs_in_each_of_its_revisions_with_the_matching_client() -> None:
    runs = parse_scenarios(LIST)
    assert runs == [
        ScenarioRun("auth/scope-step-up", "2025-11-25"),
        ScenarioRun("auth/scope-step-up", "2026-07-28"),
        ScenarioRun("auth/client-credentials-jwt", "2026-07-28"),
        ScenarioRun("auth/resource-mismatch", "2026-07-28"),
    ]
    assert [run.client for run in runs] == ["stdio", "stdio", "gateway", "stdio"]


def test_scenario_requires_its_decisive_check() -> None:
    served, *_, credentials, mismatch = parse_scenarios(LIST)
    assert served.required_checks == {"valid-bearer-token"}
    assert credentials.required_checks == {"valid-bearer-token", "client-credentials-jwt-verified"}
    assert mismatch.required_checks == {"resource-mismatch-rejected"}


def test_every_skipped_scenario_is_an_extension_with_a_reason() -> None:
    for scenario, reason in (yaml.safe_load(NOT_APPLICABLE.read_text()) or {}).items():
        assert scenario.startswith("auth/")
        assert reason.startswith("Extension (SEP-")
