"""`--workers`: several processes behind one socket, their replacement and shutdown."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.flows.process import CORE, Served, run, serving, until, write_settings
from tests.servers import Valkey


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, _shared_valkey: Valkey) -> Iterator[Callable[[], Served]]:
    """A gateway with two workers: the one of an earlier test if it still runs, else a new one."""
    with ExitStack() as stack:
        started: list[Served] = []

        def pair() -> Served:
            if not started or started[-1].process.poll() is not None:
                folder = tmp_path_factory.mktemp("two")
                write_settings(folder, backends=CORE, bus={"url": _shared_valkey.url, "prefix": folder.name})
                started.append(stack.enter_context(serving(folder, "--workers", "2")))
            return started[-1]

        yield pair


@pytest.fixture
def two(pairs: Callable[[], Served]) -> Served:
    return pairs()


def workers(served: Served) -> list[psutil.Process]:
    return [child for child in psutil.Process(served.process.pid).children() if child.is_running()]


def answers_calls(served: Served) -> bool:
    try:
        return "result" in served.call("core_ping")
    except httpx.TransportError:
        return False


def read_metrics(served: Served) -> tuple[float, float]:
    """The number of `core.ping` calls and of gateways in one metrics scrape."""
    lines = httpx.get(f"{served.base}/metrics", timeout=10, verify=False).text.splitlines()
    calls = [line for line in lines if line.startswith("gatehouse_calls_total") and "core.ping" in line]
    builds = [line for line in lines if line.startswith("gatehouse_build_info")]
    assert len(calls) <= 1
    return sum(float(line.split()[-1]) for line in calls), sum(float(line.split()[-1]) for line in builds)


def test_one_metrics_scrape_sums_all_workers(two: Served) -> None:
    until(lambda: answers_calls(two), "an answer")
    until(lambda: read_metrics(two)[0] > 0, "the first is counted")
    before, _ = read_metrics(two)
    for _ in range(12):
        assert "result" in two.call("core_ping")
    until(lambda: read_metrics(two) == (before + 12, 1), "a sum over both workers")
    assert read_metrics(two) == (before + 12, 1)  # whichever worker answers
    assert read_metrics(two) == (before + 12, 1)


def test_killed_worker_is_replaced_while_the_others_keep_serving(two: Served) -> None:
    first = until(lambda: len(found := workers(two)) == 2 and found, "two workers")
    assert answers_calls(two)
    session = two.initialize()
    first[0].kill()
    until(lambda: answers_calls(two), "the other worker serves")
    answer = two.post({"id": 1, "method": "ping"}, mcp_session_id=session)
    assert answer.status_code == 200
    until(lambda: len(workers(two)) == 2 and first[0] not in workers(two), "a new worker")
    two.process.send_signal(signal.SIGTERM)
    assert two.process.wait(15) == 0
    assert not any(child.is_running() for child in first)


def test_workers_exit_with_their_parent_process(two: Served) -> None:
    both = until(lambda: len(found := workers(two)) == 2 and found, "two workers")
    until(lambda: answers_calls(two), "an answer")
    two.process.kill()
    ended, alive = psutil.wait_procs(both, 15)
    assert (len(ended), alive) == (2, [])


def test_several_workers_without_a_bus_are_rejected_with_the_setting_to_add(tmp_path: Path) -> None:
    write_settings(tmp_path, backends=CORE)
    refused: subprocess.CompletedProcess[str] = run(tmp_path, "serve", "--port", "0", "--workers", "2")
    assert refused.returncode == 2
    assert "set bus.url" in refused.stderr


def test_backend_that_uses_files_requires_files_shared(tmp_path: Path, valkey_url: str, prefix: str) -> None:
    launch = {"launch": {"module": "backends.launch"}}
    write_settings(tmp_path, backends=launch, bus={"url": valkey_url, "prefix": prefix})
    refused = run(tmp_path, "serve", "--port", "0")
    assert refused.returncode == 2
    assert "set files_shared: true" in refused.stderr
    write_settings(tmp_path, backends=launch, bus={"url": valkey_url, "prefix": prefix}, files_shared=True)
    with serving(tmp_path) as served:
        assert "launch_start_run" in served.tool_names()
