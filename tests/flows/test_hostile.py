"""Hostile input to the public endpoint: every response is well formed, and the process keeps serving."""

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.flows import hostile
from tests.flows.conftest import BACKENDS
from tests.flows.process import HANDSHAKE, MODERN, Served, modern, serving, until, write_settings
from tests.flows.rawhttp import Answer, exchange, request

LONG: Final = os.environ.get("GATEHOUSE_LONG") == "1"
CASES: Final = 10_000 if LONG else 200
MAX_GROWTH: Final = 2 * 1024 * 1024
CPU_BUDGET: Final = 0.1
"""CPU seconds; the clock has a resolution of 10 ms."""
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
    """Check that the response, if any, is no server error and reveals no internals."""
    if answer.status is None:
        return
    assert answer.status < 500, (answer.status, answer.body)
    assert not LEAKS.search(answer.body), answer.body
    for message in answer.messages():
        error = message.get("error") if isinstance(message, dict) else None
        if error is not None and "code" in error:
            assert error["code"] != INTERNAL, error


def attack(target: Served, sessions: list[str], cases: int, start: int) -> None:
    """Send generated requests; a third of them are not complete."""
    whole = hostile.requests(target.key, sessions).map(lambda sent: (sent, True))
    torn = hostile.noise(target.key, sessions).map(lambda sent: (sent, False))

    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
    )
    @given(st.one_of(whole, whole, torn))
    def each(sent: tuple[bytes, bool]) -> None:
        check(exchange(target.port, sent[0], whole=sent[1]))

    # The short run is deterministic; the long run explores new inputs.
    (each if LONG else seed(start)(each))()


def test_no_request_gets_a_500_a_traceback_or_an_exception_message(target: Served) -> None:
    sessions = [target.initialize(elicitation={}), target.initialize(), "gone", ""]
    attack(target, sessions, CASES // 2, start=1)
    half = target.rss()
    attack(target, sessions, CASES // 2, start=2)
    assert target.process.poll() is None
    assert [line for line in target.lines() if "cause" in line or line["level"] == "error"] == []
    assert target.call("plain_echo", {"text": "still here"})["result"]["structuredContent"] == {"result": "still here"}
    if LONG:
        assert target.rss() - half <= MAX_GROWTH, (half, target.rss())


def corpus() -> Iterator[Any]:
    for file in sorted(CORPUS.glob("*.json")):
        case = json.loads(file.read_text())
        defect = case.pop("defect", None)
        marks = [pytest.mark.xfail(strict=True, reason=defect)] if defect else []
        yield pytest.param(case, id=file.stem, marks=marks)


@pytest.mark.parametrize("case", list(corpus()))
def test_corpus_message_is_rejected_with_the_expected_status_and_code(target: Served, case: Json) -> None:
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


def test_threat_28_every_log_line_is_one_json_object_for_any_request(target: Served) -> None:
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

    def logged_targets() -> set[str]:
        return {line.get("target", "") for line in target.lines()}

    # Every call is logged, with its name or the start of its name.
    until(lambda: set(forged[:-1]) <= logged_targets(), "the calls are in the log")
    assert max(map(len, logged_targets())) < 1000
    text = target.log.read_text()
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert text.isascii()
    assert not any(ord(character) < 32 for character in text.replace("\n", ""))
    assert target.key not in text


def post(target: Served, body: bytes, *more: tuple[bytes, bytes], era: str = MODERN) -> Answer:
    """Post this body with otherwise valid headers."""
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


def within_cpu_budget(target: Served, act: Callable[[], T], seconds: float = CPU_BUDGET) -> T:
    """Check that `act` costs the gateway at most `seconds` of CPU. Retries, as other tests may add to a measurement."""
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
    "a body of 5 MiB": (b" " * (5 << 20), 413, CPU_BUDGET, 10),
    "a string of 10 MB": (b'{"a":"' + b"x" * 10_000_000 + b'"}', 413, CPU_BUDGET, 10),
    "100,000 levels of objects": (nested(100_000), 400, CPU_BUDGET, 10),
    "100,000 levels of arrays": (b"[" * 100_000, 400, CPU_BUDGET, 10),
    "100,000 keys": (json.dumps({f"k{n}": n for n in range(100_000)}).encode(), 400, CPU_BUDGET, 10),
    "a million empty arrays": (b'{"a":[' + b",".join([b"[]"] * 1_000_000) + b"]}", 400, CPU_BUDGET, 10),
    "a number of a million digits": (b'{"jsonrpc":"2.0","id":' + b"9" * 1_000_000 + b"}", 400, CPU_BUDGET, 10),
}


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
@pytest.mark.parametrize(("body", "status", "seconds", "growth"), HEAVY.values(), ids=HEAVY)
def test_threat_23_expensive_body_is_rejected_with_little_cpu_and_memory(
    target: Served, body: bytes, status: int, seconds: float, growth: int, era: str
) -> None:
    before = target.rss()
    answer = within_cpu_budget(target, lambda: post(target, body, era=era), seconds)
    assert answer.status == status
    assert target.rss() - before < growth * len(body)


def test_threat_23_rejection_of_a_large_body_names_the_limit(target: Served) -> None:
    error = json.loads(post(target, b" " * (5 << 20)).body)["error"]["data"]
    assert (error["kind"], error["max_bytes"]) == ("too_large", 4 << 20)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip"])
def test_threat_33_gzip_bomb_is_rejected_without_decompression(target: Served, encoding: bytes) -> None:
    bomb = gzip.compress(b" " * (16 << 20))
    before = target.rss()
    answer = within_cpu_budget(target, lambda: post(target, bomb, (b"content-encoding", encoding)))
    assert answer.status == 415
    assert target.rss() - before < 10 << 20


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE, "2025-03-26"])
@pytest.mark.parametrize("size", [0, 1, 10_000])
def test_threat_26_batch_of_any_size_is_rejected_with_little_cpu(target: Served, era: str, size: int) -> None:
    batch = json.dumps([modern("tools/call", {"name": "plain_echo", "arguments": {"text": "x"}})] * size).encode()
    answer = within_cpu_budget(target, lambda: post(target, batch, era=era))
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == -32600


def test_threat_21_hostile_schemas_of_a_backend_cost_callers_no_cpu(target: Served) -> None:
    assert {name for name in target.tool_names() if name.startswith("evil_")} == {"evil_pattern", "evil_harmless"}
    for tool, kind in (("evil_pattern", "invalid_input"), ("evil_laughs", "not_found"), ("evil_remote", "not_found")):
        answer = within_cpu_budget(target, partial(target.call, tool, {"text": "a" * 40 + "!"}))
        assert f'"{kind}"' in json.dumps(answer), answer
    assert target.call("evil_harmless", {"text": "x"})["result"]["content"][0]["text"] == "reached"
    assert len(target.lines_with("is not served")) == 3
