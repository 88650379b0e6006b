"""Operator tokens are sent only to configured URLs, although tenants choose the URL and the token's name."""

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError

from backends.launch.commit.client import CommitClient
from backends.launch.options import Options
from backends.launch.outbound import OutboundClients
from backends.launch.run import Run
from backends.launch.telemetry import Telemetry
from gateway.contract import Host
from gateway.errors import Fault, Kind

OPERATOR_URL, ATTACKER_URL = "https://commits.corp.example", "https://attacker.example"


class FakeHost:
    """A host whose HTTP client records the URL and authorization header of every request."""

    def __init__(self, **options: Any) -> None:
        self.requests: list[tuple[str, str | None]] = []
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._respond))
        self.options = Options(github_api=None, **options)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(201, json={"commit_sha": "c" * 40})

    @property
    def outbound(self) -> OutboundClients:
        return OutboundClients(cast("Host", self))


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("OPERATOR_TOKEN", "secret-token")
    monkeypatch.setenv("OTHER_TOKEN", "other-secret")


@pytest.mark.parametrize(
    "url",
    [
        ATTACKER_URL,
        f"{OPERATOR_URL}.attacker.example",
        f"{OPERATOR_URL}@attacker.example",
        f"{OPERATOR_URL}:8443",
        "http://commits.corp.example",
        f"{OPERATOR_URL}/team/../admin",
        f"{OPERATOR_URL}/team/%2e%2e/admin",
        f"{OPERATOR_URL}/teammates",
        "not an address",
        "https://[",
    ],
)
async def test_token_is_not_sent_to_a_url_that_the_operator_did_not_configure(url: str) -> None:
    host = FakeHost(token_envs={"OPERATOR_TOKEN": [f"{OPERATOR_URL}/team"]})
    with pytest.raises(Fault, match="may not be sent to this URL") as caught:
        await CommitClient(host.outbound, url, "OPERATOR_TOKEN").commit({"idempotency_key": "k"})
    assert (caught.value.kind, caught.value.code) == (Kind.DENIED, "INVALID_INPUT")
    assert host.requests == []
    assert "secret-token" not in str(caught.value.details)


async def test_token_is_sent_to_its_configured_url_only() -> None:
    host = FakeHost(token_envs={"OPERATOR_TOKEN": [f"{OPERATOR_URL}/team/"], "OTHER_TOKEN": [ATTACKER_URL]})
    await CommitClient(host.outbound, f"{OPERATOR_URL}/team", "OPERATOR_TOKEN").commit({"idempotency_key": "k"})
    assert host.requests == [(f"{OPERATOR_URL}/team/v1/commit", "Bearer secret-token")]
    with pytest.raises(Fault, match="may not be sent to this URL"):
        await CommitClient(host.outbound, f"{OPERATOR_URL}/team", "OTHER_TOKEN").commit({"idempotency_key": "k"})


def test_listed_tokens_are_sent_to_all_endpoints_and_to_no_other_url() -> None:
    outbound = FakeHost(token_envs=["OPERATOR_TOKEN"], endpoints=[OPERATOR_URL, "http://127.0.0.1:8765"]).outbound
    for url in (f"{OPERATOR_URL}/v1/commit", "http://127.0.0.1:8765/api/v1/runs"):
        assert outbound.bearer_header("OPERATOR_TOKEN", url) == {"authorization": "Bearer secret-token"}
    with pytest.raises(Fault, match="may not be sent to this URL"):
        outbound.bearer_header("OPERATOR_TOKEN", f"{ATTACKER_URL}/v1/commit")
    assert outbound.bearer_header(None, ATTACKER_URL) == {}


@pytest.mark.parametrize("token_envs", [["OPERATOR_TOKEN"], {"OPERATOR_TOKEN": []}])
def test_token_without_a_url_is_rejected_in_the_options(token_envs: Any) -> None:
    with pytest.raises(ValidationError, match="OPERATOR_TOKEN has no URL; list the URLs"):
        Options(token_envs=token_envs)


async def test_telemetry_is_not_sent_when_its_token_is_configured_for_another_url(tmp_path: Any) -> None:
    telemetry: dict[str, str | None] = {"endpoint_url": ATTACKER_URL, "auth_token_env": "OPERATOR_TOKEN"}
    run = SimpleNamespace(run_id="r", folder=tmp_path, config={"telemetry": telemetry})
    record = b'{"event_id":"1"}\n'
    (tmp_path / "telemetry_outbox.jsonl").write_bytes(record)
    host = FakeHost(token_envs=["OPERATOR_TOKEN"], endpoints=[OPERATOR_URL])
    await Telemetry(cast("Host", host), host.outbound).deliver(cast("Run", run))
    assert host.requests == []
    telemetry["auth_token_env"] = None
    await Telemetry(cast("Host", host), host.outbound).deliver(cast("Run", run))
    assert host.requests == [(f"{ATTACKER_URL}/api/v1/runs", None)]


@pytest.mark.parametrize("url", [f"{OPERATOR_URL}/a/../../b", f"{OPERATOR_URL}/a/%2E%2e/b", "https://[", ATTACKER_URL])
def test_unguarded_client_is_used_only_for_urls_below_an_endpoint(url: str) -> None:
    host = FakeHost(endpoints=[f"{OPERATOR_URL}/a"])
    assert host.outbound.client(url) is host.http
    assert host.outbound.client(f"{OPERATOR_URL}/a/b") is not host.http
