"""Whatever is sent to the public endpoint, the answer is an answer, and the process goes on."""

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.flows import hostile
from tests.flows.conftest import BACKENDS
from tests.flows.process import HANDSHAKE, MODERN, Served, modern, serving, until, write_settings
from tests.flows.rawhttp import Answer, exchange, request

LONG: Final = os.environ.get("GATEHOUSE_LONG") == "1"
CASES: Final = 10_000 if LONG else 200
GROWTH: Final = 2 * 1024 * 1024
AT_ONCE: Final = 0.1
"""Seconds of processor time; its clock ticks in hundredths."""
TRIES: Final = 4

LEAKS: Final = re.compile(
    rb'Traceback|File "|\.py\b|site-packages|\b[A-Z]\w*(Error|Exception)\b|NoneType|object has no attribute|'
    rb"unhashable|positional argument|codec can't|not supported between|KeyError|0x[0-9a-f]{8}"
)
INTERNAL: Final = -32603
CORPUS: Final = Path(__file__).parents[1] / "corpus" / "messages"
Json = dict[str, Any]
T = TypeVar("T")


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
    assert [line for line in target.lines() if "cause" in line or line["level"] == "error"] == []
    assert target.call("plain_echo", {"text": "still here"})["result"]["structuredContent"] == {"result": "still here"}
    if LONG:
        assert target.rss() - half <= GROWTH, (half, target.rss())


def corpus() -> Iterator[Any]:
    for file in sorted(CORPUS.glob("*.json")):
        case = json.loads(file.read_text())
        defect = case.pop("defect", None)
        marks = [pytest.mark.xfail(strict=True, reason=defect)] if defect else []
        yield pytest.param(case, id=file.stem, marks=marks)


@pytest.mark.parametrize("case", list(corpus()))
def test_a_message_of_the_corpus_is_refused_as_it_should_be(target: Served, case: Json) -> None:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", b"Bearer " + target.key.encode()),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-type", b"application/json"),
        *((name.encode(), value.encode()) for name, value in case["headers"].items()),
    ]
    body = json.dumps(case["body"]).encode()
    answer = exchange(target.port, request(b"POST", b"/mcp", [*headers, (b"content-length", b"%d" % len(body))], body))
    check(answer)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (case["status"], case["code"])


def test_threat_28_every_line_of_the_log_is_one_json_object_whatever_was_sent(target: Served) -> None:
    session = target.initialize()
    forged = ("\r\nforged", "\x1b[31mred", "\u2028line", '{"level":"error"}', "\x00", "é" * 9000)
    for name in forged:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}).encode()
        headers = [
            (b"host", b"127.0.0.1"),
            (b"authorization", b"Bearer " + target.key.encode()),
            (b"user-agent", b"caf\xe9 {}"),
            (b"content-type", b"application/json"),
            (b"mcp-session-id", session.encode()),
            (b"mcp-protocol-version", HANDSHAKE.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        check(exchange(target.port, request(b"POST", b"/mcp", headers, body)))
        check(exchange(target.port, request(b"POST", b"/mcp/%0d%0aforged%1b", headers, body)))

    def told() -> set[str]:
        return {line.get("target", "") for line in target.lines()}

    # Each was told of, in its own words or the start of them.
    until(lambda: set(forged[:-1]) <= told(), "the calls are in the log")
    assert max(map(len, told())) < 1000
    text = target.log.read_text()
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert text.isascii()
    assert not any(ord(character) < 32 for character in text.replace("\n", ""))
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


def at_once(target: Served, act: Callable[[], T], seconds: float = AT_ONCE) -> T:
    """What `act` does costs the gateway next to nothing: the cheapest of a few times, as its neighbours add to one."""
    for tries_left in reversed(range(TRIES)):
        before = target.cpu()
        answer = act()
        if (took := target.cpu() - before) <= seconds:
            return answer
        assert tries_left, took
    raise AssertionError


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


HEAVY: Final = {
    "a body of 5 MiB": (b" " * (5 << 20), 413, AT_ONCE, 10),
    "a string of 10 MB": (b'{"a":"' + b"x" * 10_000_000 + b'"}', 413, AT_ONCE, 10),
    "100,000 levels of objects": (nested(100_000), 400, AT_ONCE, 10),
    "100,000 levels of arrays": (b"[" * 100_000, 400, AT_ONCE, 10),
    "100,000 keys": (json.dumps({f"k{n}": n for n in range(100_000)}).encode(), 400, AT_ONCE, 10),
    "a million empty arrays": (b'{"a":[' + b",".join([b"[]"] * 1_000_000) + b"]}", 400, AT_ONCE, 10),
    "a number of a million digits": (b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b"}", 400, AT_ONCE, 10),
}


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
@pytest.mark.parametrize(("body", "status", "seconds", "growth"), HEAVY.values(), ids=HEAVY)
def test_threat_23_a_heavy_body_is_refused_at_once_and_leaves_nothing(
    target: Served, body: bytes, status: int, seconds: float, growth: int, era: str
) -> None:
    before = target.rss()
    answer = at_once(target, lambda: post(target, body, era=era), seconds)
    assert answer.status == status
    assert target.rss() - before < growth * len(body)


def test_threat_23_a_body_over_the_limit_names_the_limit(target: Served) -> None:
    error = json.loads(post(target, b" " * (5 << 20)).body)["error"]
    assert (error["kind"], error["max_bytes"]) == ("too_large", 4 << 20)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip"])
def test_threat_33_a_gzip_bomb_is_refused_at_once_and_never_unpacked(target: Served, encoding: bytes) -> None:
    bomb = gzip.compress(b" " * (16 << 20))
    before = target.rss()
    answer = at_once(target, lambda: post(target, bomb, (b"content-encoding", encoding)))
    assert answer.status == 415
    assert target.rss() - before < 10 << 20


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE, "2025-03-26"])
@pytest.mark.parametrize("size", [0, 1, 10_000])
def test_threat_26_a_batch_of_any_size_is_refused_at_once(target: Served, era: str, size: int) -> None:
    batch = json.dumps([modern("tools/call", {"name": "plain_echo", "arguments": {"text": "x"}})] * size).encode()
    answer = at_once(target, lambda: post(target, batch, era=era))
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == -32600


def test_threat_21_a_backends_hostile_schemas_cost_nobody_anything(target: Served) -> None:
    assert {name for name in target.tool_names() if name.startswith("evil_")} == {"evil_pattern", "evil_harmless"}
    for tool, kind in (("evil_pattern", "invalid_input"), ("evil_laughs", "not_found"), ("evil_remote", "not_found")):
        answer = at_once(target, partial(target.call, tool, {"text": "a" * 40 + "!"}))
        assert f'"{kind}"' in json.dumps(answer), answer
    assert target.call("evil_harmless", {"text": "x"})["result"]["content"][0]["text"] == "reached"
    said = [line["message"] for line in target.logged("is not served")]
    assert len(said) == 3
