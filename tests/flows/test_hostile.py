"""Whatever is sent to the public endpoint, the answer is an answer, and the process goes on."""

import json
import os
import re
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.flows import hostile
from tests.flows.conftest import BACKENDS
from tests.flows.process import Served, modern, serving, write_settings
from tests.flows.rawhttp import Answer, exchange, request

LONG: Final = os.environ.get("GATEHOUSE_LONG") == "1"
CASES: Final = 10_000 if LONG else 200
GROWTH: Final = 2 * 1024 * 1024
AT_ONCE: Final = 0.5
"""Milliseconds are meant; the rest is patience with a busy machine."""

LEAKS: Final = re.compile(
    rb'Traceback|File "|\.py\b|site-packages|\b[A-Z]\w*(Error|Exception)\b|NoneType|object has no attribute|'
    rb"unhashable|positional argument|codec can't|not supported between|KeyError|0x[0-9a-f]{8}"
)
INTERNAL: Final = -32603


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    write_settings(
        folder,
        backends=BACKENDS,
        limits={"calls": "100000000/minute"},
        server={"header_timeout": 2, "body_timeout": 2, "idle_timeout": 2},
    )
    with serving(folder) as served:
        yield served


def check(answer: Answer) -> None:
    """It is no answer, or one that tells nothing of our insides."""
    if answer.status is None:
        return
    assert answer.status < 500, (answer.status, answer.body)
    assert not LEAKS.search(answer.body), answer.body
    for message in answer.messages():
        error = message.get("error") if isinstance(message, dict) else None
        if error is not None and "code" in error:
            assert error["code"] != INTERNAL, error


def attack(target: Served, sessions: list[str], cases: int, start: int) -> None:
    """That many requests, every third of them not even whole."""
    whole = hostile.requests(target.key, sessions).map(lambda sent: (sent, True))
    torn = hostile.noise(target.key, sessions).map(lambda sent: (sent, False))

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(whole, whole, torn))
    def each(sent: tuple[bytes, bool]) -> None:
        check(exchange(target.port, sent[0], whole=sent[1]))

    # The short run is the same each time; the long one is for finding what is not yet known.
    (each if LONG else seed(start)(each))()


def test_no_request_gets_a_500_a_traceback_or_an_exceptions_text(target: Served) -> None:
    sessions = [target.initialize(elicitation={}), target.initialize(), "gone", ""]
    attack(target, sessions, CASES // 2, start=1)
    half = target.rss()
    attack(target, sessions, CASES // 2, start=2)
    assert target.process.poll() is None
    assert target.call("plain_echo", {"text": "still here"})["result"]["structuredContent"] == {"result": "still here"}
    if LONG:
        assert target.rss() - half <= GROWTH, (half, target.rss())


def test_threat_28_every_line_of_the_log_is_one_json_object_and_no_failure_of_ours(target: Served) -> None:
    for name in ("\r\nforged", "\x1b[31mred", "\u2028line", '{"level":"error"}', "\x00", "x" * 9000):
        body = json.dumps(modern("tools/call", {"name": name})).encode()
        headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", b"Bearer " + target.key.encode()),
            (b"user-agent", name.encode("latin-1", "replace").replace(b"\r\n", b"").replace(b"\x00", b"")),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        check(exchange(target.port, request(b"POST", b"/mcp", headers, body)))
    text = target.log.read_text()
    assert text.endswith("\n")
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert all(isinstance(line, dict) and {"time", "level", "message"} <= set(line) for line in lines)
    assert text.isascii()
    assert not any(ord(character) < 32 for character in text.replace("\n", ""))
    assert [line for line in lines if "cause" in line or line["level"] in ("error", "critical")] == []
    assert target.key not in text
