"""Whatever is sent to the public endpoint, the answer is an answer, and the process goes on."""

import gzip
import json
import os
import re
from collections.abc import Iterator
from time import monotonic
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.flows import hostile
from tests.flows.conftest import BACKENDS
from tests.flows.process import HANDSHAKE, MODERN, Served, modern, serving, write_settings
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
        backends={**BACKENDS, "evil": {"module": "tests.flows.fixtures.evil"}},
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


def post(target: Served, body: bytes, *more: tuple[bytes, bytes], era: str = MODERN) -> Answer:
    """A POST of this body with everything else as it should be."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", b"Bearer " + target.key.encode()),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        (b"mcp-protocol-version", era.encode()),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", b"plain_echo"),
        (b"content-length", b"%d" % len(body)),
        *more,
    ]
    answer = exchange(target.port, request(b"POST", b"/mcp", headers, body))
    check(answer)
    return answer


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


HEAVY: Final = {
    "a body of 5 MiB": (b" " * (5 << 20), 413),
    "a string of 10 MB": (b'{"a":"' + b"x" * 10_000_000 + b'"}', 413),
    "100,000 levels of objects": (nested(100_000), 400),
    "100,000 levels of arrays": (b"[" * 100_000, 400),
    "100,000 keys": (json.dumps({f"k{n}": n for n in range(100_000)}).encode(), 400),
    "a number of a million digits": (b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b"}", 400),
}


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
@pytest.mark.parametrize(("body", "status"), HEAVY.values(), ids=HEAVY)
def test_threat_23_a_heavy_body_is_refused_at_once_and_leaves_nothing(
    target: Served, body: bytes, status: int, era: str
) -> None:
    post(target, body, era=era)
    before = target.rss()
    answer = post(target, body, era=era)
    assert answer.status == status
    assert answer.seconds < AT_ONCE
    assert target.rss() - before < 10 * len(body)


def test_threat_23_a_body_over_the_limit_names_the_limit(target: Served) -> None:
    error = json.loads(post(target, b" " * (5 << 20)).body)["error"]
    assert (error["kind"], error["max_bytes"]) == ("too_large", 4 << 20)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip"])
def test_threat_33_a_gzip_bomb_is_refused_at_once_and_never_unpacked(target: Served, encoding: bytes) -> None:
    bomb = gzip.compress(b" " * (64 << 20), 9)
    before = target.rss()
    answer = post(target, bomb, (b"content-encoding", encoding))
    assert answer.status == 415
    assert answer.seconds < AT_ONCE
    assert target.rss() - before < 10 << 20


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE, "2025-03-26"])
@pytest.mark.parametrize("size", [0, 1, 10_000])
def test_threat_26_a_batch_of_any_size_is_refused_at_once(target: Served, era: str, size: int) -> None:
    batch = json.dumps([modern("tools/call", {"name": "plain_echo", "arguments": {"text": "x"}})] * size).encode()
    answer = post(target, batch, era=era)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == -32600
    assert answer.seconds < AT_ONCE


def test_threat_21_a_backends_hostile_schemas_cost_nobody_anything(target: Served) -> None:
    assert {name for name in target.tool_names() if name.startswith("evil_")} == {"evil_pattern", "evil_harmless"}
    for tool, kind in (("evil_pattern", "invalid_input"), ("evil_laughs", "not_found"), ("evil_remote", "not_found")):
        started = monotonic()
        answer = target.call(tool, {"text": "a" * 40 + "!"})
        assert monotonic() - started < AT_ONCE
        assert f'"{kind}"' in json.dumps(answer), answer
    assert target.call("evil_harmless", {"text": "x"})["result"]["content"][0]["text"] == "reached"
    said = [line["message"] for line in target.logged("is not served")]
    assert len(said) == 3
