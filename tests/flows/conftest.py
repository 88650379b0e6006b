"""A gateway in its own process, shared by the flow tests that do not change it."""

from collections.abc import Iterator

import pytest

from tests.flows.process import CORE, Served, serving, write_settings

BACKENDS = {
    **CORE,
    "plain": {"module": "tests.flows.fixtures.plain"},
    "strict": {"module": "tests.flows.fixtures.strict"},
    "soft": {"module": "tests.flows.fixtures.strict", "faults": "result"},
}


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    write_settings(folder, backends=BACKENDS, limits={"calls": "1000000/minute"})
    with serving(folder) as running:
        yield running
