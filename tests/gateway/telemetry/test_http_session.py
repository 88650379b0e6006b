"""The session of the exporters keeps nothing of a request that failed."""

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from gateway.telemetry.http_session import CollectorSession
from tests.peers.collector import http_collector


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fail(session: requests.Session, url: str, body: bytes) -> type[Exception]:
    try:
        session.request("POST", url, data=body, timeout=0.2)
    except requests.RequestException as exc:
        return type(exc)
    raise AssertionError("the request did not fail")


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("behaviour", ["resetting", "slow", "unreachable"])
def test_body_of_a_failed_request_is_released_at_once(behaviour: Any) -> None:
    body = b"x" * 100_000
    with http_collector() as collector:
        collector.behaviour = behaviour
        url = "http://127.0.0.1:9" if behaviour == "unreachable" else collector.url
        session = CollectorSession()
        before = sys.getrefcount(body)
        for _ in range(3):
            error = fail(session, f"{url}/v1/traces", body)
            assert issubclass(error, (requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout))
        assert sys.getrefcount(body) == before
        session.close()


@pytest.mark.usefixtures("no_garbage_collection")
def test_plain_session_would_keep_the_body() -> None:
    """The reason for the own session. If this fails, requests or urllib3 has no cycle any more."""
    body = b"x" * 100_000
    before = sys.getrefcount(body)
    fail(requests.Session(), "http://127.0.0.1:9/v1/traces", body)
    assert sys.getrefcount(body) > before
