"""Two processes with one data folder act as one gateway."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

import pytest

from tests.flows.process import HANDSHAKE, Served, run, starting, until, write_settings

PROPAGATION = 1.0
"""Seconds within which a change must reach the other process."""
TOLERANCE = 1.0
"""Additional seconds for a busy machine."""

Pair = tuple[Served, Served]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes started at the same time on a folder without data."""
    folder = tmp_path_factory.mktemp("pair")
    write_settings(
        folder, backends={"plain": {"module": "tests.flows.fixtures.plain"}}, limits={"calls": "1000000/minute"}
    )
    with starting(folder, name="one") as one, starting(folder, name="two") as two:
        both = one(), two()
        key = both[0].key or both[1].key
        assert key, "a first start shows a key"
        yield replace(both[0], key=key), replace(both[1], key=key)


def session_status(served: Served, session: str) -> int:
    return served.post({"id": 9, "method": "ping"}, mcp_session_id=session).status_code


def test_requests_of_one_session_can_alternate_between_processes(pair: Pair) -> None:
    one, two = pair
    session = one.initialize()
    header = {"mcp_session_id": session, "mcp_protocol_version": HANDSHAKE}
    assert two.post({"method": "notifications/initialized"}, **header).status_code == 202
    for number, served in enumerate(islice(cycle((two, one)), 20)):
        params = {"name": "plain_echo", "arguments": {"text": str(number)}}
        answer = served.post({"id": number, "method": "tools/call", "params": params}, **header).json()
        assert answer["id"] == number
        assert answer["result"]["structuredContent"] == {"result": str(number)}


def test_session_ended_at_one_process_is_404_at_the_other_within_a_second(pair: Pair) -> None:
    for ends, learns in (pair, pair[::-1]):
        session = learns.initialize()
        assert session_status(ends, session) == session_status(learns, session) == 200
        assert ends.delete(session).status_code == 204
        ended = time.monotonic()
        assert session_status(ends, session) == 404
        until(lambda s=session, at=learns: session_status(at, s) == 404, "the other process refuses the session")
        assert time.monotonic() - ended < PROPAGATION + TOLERANCE


def test_log_level_set_at_one_process_applies_at_the_other(pair: Pair) -> None:
    one, two = pair
    session = one.initialize()
    header = {"mcp_session_id": session, "mcp_protocol_version": HANDSHAKE}
    set_level = {"id": 1, "method": "logging/setLevel", "params": {"level": "error"}}
    assert "result" in one.post(set_level, **header).json()
    say = {"id": 2, "method": "tools/call", "params": {"name": "plain_log", "arguments": {"text": "quiet"}}}
    until(lambda: "notifications/message" not in two.post(say, **header).text, "the other process is quiet", 2)


def test_key_created_by_command_works_at_both_processes_until_revoked(pair: Pair) -> None:
    folder = pair[0].folder
    created = run(folder, "key", "create", "--tenant", "default", "--subject", "bob")
    assert created.returncode == 0, created.stderr
    key = created.stdout.strip()
    sessions = [served.initialize(key) for served in pair]
    for served in pair:
        assert served.call("plain_echo", {"text": "new"}, key=key)["result"]["isError"] is False
        # The session of another principal is unknown.
        assert session_status(replace(served, key=key), pair[0].initialize()) == 404

    revoked = run(folder, "key", "revoke", key.split("_")[1])
    assert revoked.returncode == 0, revoked.stderr
    since = time.monotonic()

    def refused(served: Served, session: str) -> bool:
        return served.post({"id": 1, "method": "ping"}, key, mcp_session_id=session).status_code == 401

    def refused_by_both() -> bool:
        return all(refused(served, session) for served, session in zip(pair, sessions, strict=True))

    until(refused_by_both, "both refuse the key")
    assert time.monotonic() - since < PROPAGATION + TOLERANCE
