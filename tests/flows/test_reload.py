"""The running process applies a changed `gatehouse.yaml` without dropping a call."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.flows.process import (
    CORE,
    FILE,
    HANDSHAKE,
    Json,
    Served,
    modern,
    modern_headers,
    serving,
    until,
    write_settings,
)

PLAIN = {"plain": {"module": "tests.flows.fixtures.plain"}}
PATIENT = {"patient": {"module": "tests.flows.fixtures.held_call"}}
CHANGED = "notifications/tools/list_changed"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("reload")
    write_settings(folder, backends=CORE)
    with serving(folder) as served:
        yield served


@pytest.fixture
def served(running: Served) -> Served:
    """The running gateway, reset to serve only `core`."""
    apply_settings(running, CORE)
    return running


def apply_settings(served: Served, backends: Json, **more: Any) -> None:
    """Write the settings, reload them with SIGHUP, and wait until exactly their backends are served."""
    write_settings(served.folder, backends=backends, **more)
    served.process.send_signal(signal.SIGHUP)
    until(lambda: namespaces(served) == set(backends), f"{', '.join(backends)} are served")


def namespaces(served: Served) -> set[str]:
    return {name.partition("_")[0] for name in served.tool_names()}


def rejected_reloads(served: Served, text: str) -> list[Json]:
    return [line for line in served.lines_with("reload rejected") if text in line["message"]]


def test_backend_is_added_and_removed_with_its_settings_entry(served: Served) -> None:
    # Without a signal: the gateway watches the file.
    write_settings(served.folder, backends=CORE | PLAIN)
    until(lambda: namespaces(served) == {"core", "plain"}, "the new backend is served", 5)
    assert served.call("plain_echo", {"text": "hi"})["result"]["structuredContent"] == {"result": "hi"}
    assert served.call("echo", {"text": "hi"}, path="/mcp/plain")["result"]["structuredContent"] == {"result": "hi"}
    write_settings(served.folder, backends=CORE)
    until(lambda: namespaces(served) == {"core"}, "it is no longer served", 5)
    assert served.call("plain_echo", {"text": "hi"})["error"]["data"]["kind"] == "not_found"
    assert served.request("tools/list", path="/mcp/plain")["error"]["code"] == -32601
    assert served.lines_with("settings: reloaded")


def test_virtual_server_is_added_with_its_settings_entry(served: Served) -> None:
    apply_settings(served, CORE | PLAIN, servers={"desk": {"backends": ["plain"], "names": "dotted"}})
    tools = served.request("tools/list", path="/mcp/desk")["result"]["tools"]
    assert {tool["name"].partition(".")[0] for tool in tools} == {"plain"}


@contextmanager
def held_call(served: Served, folder: Path) -> Iterator[Callable[[], Json]]:
    """Hold a call open in its backend. Yields a function that releases the call and returns the response."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.call, "patient_hold", {"folder": str(folder)})
        try:
            until(lambda: (folder / "entered").exists() or answer.done(), "the call is in the backend")
            assert not answer.done(), answer.result()

            def finish() -> Json:
                (folder / "release").touch()
                return answer.result(30)

            yield finish
        finally:
            (folder / "release").touch()


def test_call_in_flight_finishes_after_its_backend_is_removed(served: Served, tmp_path: Path) -> None:
    apply_settings(served, CORE | PATIENT)
    with held_call(served, tmp_path) as finish:
        apply_settings(served, CORE)
        assert "patient_hold" not in served.tool_names()
        assert "result" in finish()


def test_lifespan_of_a_removed_backend_lasts_until_its_calls_finish(served: Served, tmp_path: Path) -> None:
    apply_settings(served, CORE | PATIENT)
    with held_call(served, tmp_path) as finish:
        apply_settings(served, CORE)
        for _ in range(5):
            served.tool_names()  # gives the gateway time to process the removal
        assert finish()["result"]["structuredContent"] == {"result": "lifespan open"}


def test_call_in_flight_finishes_after_its_backend_is_replaced(served: Served, tmp_path: Path) -> None:
    apply_settings(served, CORE | PATIENT)
    with held_call(served, tmp_path) as finish:
        write_settings(served.folder, backends=CORE | {"patient": PLAIN["plain"]})
        served.process.send_signal(signal.SIGHUP)
        until(lambda: "patient_echo" in served.tool_names(), "the other module is served")
        assert "result" in finish()


@contextmanager
def notifications(request: httpx.Request) -> Iterator[list[str]]:
    """Collect the notification methods of a stream, in order, while the block runs."""
    methods: list[str] = []
    with httpx.Client(verify=False, timeout=30, trust_env=False) as http, ThreadPoolExecutor(1) as pool:
        answer = http.send(request, stream=True)
        assert answer.status_code == 200, answer.read()

        def listen() -> None:
            try:
                for line in answer.iter_lines():
                    if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                        methods.append(json.loads(data).get("method"))
            except httpx.HTTPError:
                pass  # the block ended

        pool.submit(listen)
        try:
            yield methods
        finally:
            # Not `close`: it would wait for a lock held by the listening thread.
            answer.extensions["network_stream"].get_extra_info("socket").shutdown(2)


def get_stream(served: Served) -> httpx.Request:
    headers = {
        "authorization": f"Bearer {served.key}",
        "accept": "text/event-stream",
        "mcp-session-id": served.initialize(),
        "mcp-protocol-version": HANDSHAKE,
    }
    return httpx.Request("GET", served.url, headers=headers)


def listen_stream(served: Served) -> httpx.Request:
    params = {"notifications": {"toolsListChanged": True}}
    headers = {
        "authorization": f"Bearer {served.key}",
        "accept": "application/json, text/event-stream",
        **modern_headers("subscriptions/listen"),
    }
    return httpx.Request("POST", served.url, headers=headers, json=modern("subscriptions/listen", params, id="L1"))


@contextmanager
def both_streams(served: Served) -> Iterator[tuple[list[str], list[str]]]:
    with notifications(get_stream(served)) as old, notifications(listen_stream(served)) as new:
        until(lambda: new, "the subscription is acknowledged")
        assert new == ["notifications/subscriptions/acknowledged"]
        yield old, new


def test_both_eras_are_notified_of_an_added_backend(served: Served) -> None:
    with both_streams(served) as (old, new):
        apply_settings(served, CORE | PLAIN)
        until(lambda: CHANGED in old, "the GET stream gets the notification", 5)
        until(lambda: CHANGED in new, "the subscription gets the notification", 5)


def test_both_eras_are_notified_of_a_removed_backend(served: Served) -> None:
    apply_settings(served, CORE | PLAIN)
    with both_streams(served) as (old, new):
        apply_settings(served, CORE)
        until(lambda: CHANGED in old, "the GET stream gets the notification", 2)
        until(lambda: CHANGED in new, "the subscription gets the notification", 2)


BROKEN = {
    "no-yaml": ("backends: {core: [", "not valid YAML"),
    "unknown-key": (yaml.safe_dump({"backendz": {}}), "backendz"),
    "no-such-module": (yaml.safe_dump({"backends": {"x": {"module": "no_such_module"}}}), "no_such_module"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_invalid_settings_change_nothing_and_are_logged(served: Served, text: str, message: str) -> None:
    (served.folder / FILE).write_text(text)
    served.process.send_signal(signal.SIGHUP)
    lines = until(lambda: rejected_reloads(served, message), "the rejected reload is logged")
    assert all(line["level"] == "error" for line in lines)
    assert served.tool_names() == {"core_ping"}
    apply_settings(served, CORE | PLAIN)


UNLOADABLE = {
    "no_python": "def server(:\n",
    "no_import": "raise RuntimeError('not today')\n",
    "no_server": "def server(host):\n    raise RuntimeError('not today')\n",
    "no_start": """
from contextlib import asynccontextmanager
from mcp.server import MCPServer

@asynccontextmanager
async def lifespan(server):
    raise RuntimeError("not today")
    yield

server = MCPServer("no_start", lifespan=lifespan)
""",
}


def test_module_that_fails_to_load_changes_nothing_and_is_logged(tmp_path: Path) -> None:
    write_settings(tmp_path, backends=CORE)
    with serving(tmp_path) as served:
        for name, source in UNLOADABLE.items():
            before = len(rejected_reloads(served, "core"))
            (tmp_path / f"{name}.py").write_text(source)
            write_settings(tmp_path, backends={"core": {"module": name}})
            served.process.send_signal(signal.SIGHUP)
            until(lambda n=before: len(rejected_reloads(served, "core")) > n, "the rejected reload is logged", 3)
            assert served.call("core_ping")["result"]["structuredContent"]["output"]["ok"] is True
        apply_settings(served, CORE | PLAIN)


def test_sighup_reloads_the_settings_file(served: Served) -> None:
    file = served.folder / FILE
    stamp = file.stat().st_mtime_ns
    # Keep the modification time, so that the file watch detects no change.
    file.write_text(yaml.safe_dump({"backends": CORE | PLAIN, "log": {"format": "json"}}))
    os.utime(file, ns=(stamp, stamp))
    os.kill(served.process.pid, signal.SIGHUP)
    until(lambda: "plain_echo" in served.tool_names(), "the new settings are in use")
