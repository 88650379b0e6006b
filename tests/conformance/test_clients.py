"""Which client scenarios on authorization are run, and with which client."""

import yaml

from tests.conformance.clients import NOT_APPLICABLE, Run, _listed

LIST = """\
Client scenarios (test against a client):
  - tools_call [2025-06-18,2025-11-25,2026-07-28]
  - auth/scope-step-up [2025-11-25,2026-07-28]
  - auth/client-credentials-jwt [extension]
  - auth/resource-mismatch [2026-07-28]
"""


def test_a_scenario_is_run_in_each_revision_that_has_it_with_the_client_that_it_is_about() -> None:
    runs = _listed(LIST)
    assert runs == [
        Run("auth/scope-step-up", "2025-11-25"),
        Run("auth/scope-step-up", "2026-07-28"),
        Run("auth/client-credentials-jwt", "2026-07-28"),
        Run("auth/resource-mismatch", "2026-07-28"),
    ]
    assert [run.client for run in runs] == ["stdio", "stdio", "gateway", "stdio"]


def test_a_scenario_passes_only_with_the_check_that_it_is_about() -> None:
    served, *_, credentials, mismatch = _listed(LIST)
    assert served.decisive == {"valid-bearer-token"}
    assert credentials.decisive == {"valid-bearer-token", "client-credentials-jwt-verified"}
    assert mismatch.decisive == {"resource-mismatch-rejected"}


def test_every_scenario_that_is_not_run_is_an_extension_with_a_reason() -> None:
    for scenario, reason in yaml.safe_load(NOT_APPLICABLE.read_text()).items():
        assert scenario.startswith("auth/")
        assert reason.startswith("Extension (SEP-")
