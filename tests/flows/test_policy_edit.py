"""Policy edits while two processes serve: active in both within two seconds, without a failed call."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.policy.source import SHIPPED
from tests.flows.process import Json, Served, modern, modern_headers, run, starting, until, write_settings

MAX_DELAY = 2.0
"""Seconds until an edit must be active, on a loaded machine."""
FORBID = '\n@id("no.echo") forbid (principal, action, resource == Gw::Tool::"plain.echo");\n'
Pair = tuple[Served, Served]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("edit")
    shutil.copytree(SHIPPED, folder / "policies")
    write_settings(
        folder,
        backends={"plain": {"module": "tests.flows.fixtures.plain"}},
        policies={"dir": "policies"},
        limits={"calls": "1000000/minute"},
    )
    with starting(folder, name="one") as one, starting(folder, name="two") as two:
        both = one(), two()
        key = both[0].key or both[1].key
        yield replace(both[0], key=key), replace(both[1], key=key)


class Caller(threading.Thread):
    """Calls in a loop and records the responses."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self.served = served
        self.responses: list[tuple[float, Json]] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        params: Json = {"name": "plain_echo", "arguments": {"text": "hello"}}
        headers = {"authorization": f"Bearer {self.served.key}", "accept": "application/json, text/event-stream"}
        headers |= modern_headers("tools/call", params)
        with httpx.Client(trust_env=False, verify=False, timeout=30) as http:
            while not self.stopped.is_set():
                answer = http.post(self.served.url, json=modern("tools/call", params), headers=headers)
                self.responses.append((time.monotonic(), answer.json()))

    def allowed(self) -> bool:
        return bool(self.responses) and "result" in self.responses[-1][1]


def edit(folder: Path, text: str) -> None:
    fresh = folder / "policies/default/grants.new"
    fresh.write_text(text)
    fresh.replace(folder / "policies/default/10-grants.cedar")


def test_edit_under_load_fails_no_call_and_is_active_everywhere_within_two_seconds(pair: Pair) -> None:
    folder = pair[0].folder
    grants = (SHIPPED / "default/10-grants.cedar").read_text()
    callers = [Caller(served) for served in pair]
    for caller in callers:
        caller.start()
    try:
        until(lambda: all(caller.allowed() for caller in callers), "both serve")
        for text, allowed in ((grants + FORBID, False), (grants, True), (grants + FORBID, False)):
            edit(folder, text)
            edited = time.monotonic()
            until(lambda want=allowed: all(caller.allowed() is want for caller in callers), "both follow the edit")
            assert time.monotonic() - edited < MAX_DELAY
        # An invalid edit: the active version stays, and every process logs the reason.
        edit(folder, grants + "\npermit (")
        until(lambda: all(served.lines_with("policies: edit rejected") for served in pair), "both log the error")
        assert not any(caller.allowed() for caller in callers)
        assert run(folder, "policy").returncode == 2
        edit(folder, grants)
        until(lambda: all(caller.allowed() for caller in callers), "both follow the valid edit")
    finally:
        for caller in callers:
            caller.stopped.set()
            caller.join()
    for caller in callers:
        assert len(caller.responses) > 20
        for _, answer in caller.responses:
            # Every call is either served or rejected as an unknown tool.
            refused = answer.get("error", {}).get("message", "").startswith("Unknown tool")
            assert refused or answer["result"]["structuredContent"] == {"result": "hello"}
