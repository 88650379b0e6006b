"""Where a run's requests may carry the operator's tokens: a tenant wrote the address and the name of the token."""

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError

from backends.launch.commit.client import CommitClient
from backends.launch.options import Options
from backends.launch.outbound import Outward
from backends.launch.run import Run
from backends.launch.telemetry import Telemetry
from gateway.contract import Host
from gateway.errors import Fault, Kind

OURS, THEIRS = "https://commits.corp.example", "https://attacker.example"


class Far:
    """Every address there is: what was asked of it, and with which token."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.options = Options(github_api=None, **options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((str(request.url), request.headers.get("authorization")))
        return httpx.Response(201, json={"commit_sha": "c" * 40})

    @property
    def outward(self) -> Outward:
        return Outward(cast("Host", self))


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setenv("OPERATOR_TOKEN", "hush")
    monkeypatch.setenv("OTHER_TOKEN", "hush too")


@pytest.mark.parametrize(
    "elsewhere",
    [
        THEIRS,
        f"{OURS}.attacker.example",
        f"{OURS}@attacker.example",
        f"{OURS}:8443",
        "http://commits.corp.example",
        f"{OURS}/team/../admin",
        f"{OURS}/team/%2e%2e/admin",
        f"{OURS}/teammates",
        "not an address",
        "https://[",
    ],
)
async def test_a_token_goes_to_no_address_that_the_operator_did_not_name(elsewhere: str) -> None:
    far = Far(token_envs={"OPERATOR_TOKEN": [f"{OURS}/team"]})
    with pytest.raises(Fault, match="not for this address") as caught:
        await CommitClient(far.outward, elsewhere, "OPERATOR_TOKEN").commit({"idempotency_key": "k"})
    assert (caught.value.kind, caught.value.code) == (Kind.DENIED, "INVALID_INPUT")
    assert far.asked == []
    assert "hush" not in str(caught.value.details)


async def test_a_token_goes_to_the_address_that_it_is_for() -> None:
    far = Far(token_envs={"OPERATOR_TOKEN": [f"{OURS}/team/"], "OTHER_TOKEN": [THEIRS]})
    await CommitClient(far.outward, f"{OURS}/team", "OPERATOR_TOKEN").commit({"idempotency_key": "k"})
    assert far.asked == [(f"{OURS}/team/v1/commit", "Bearer hush")]
    with pytest.raises(Fault, match="not for this address"):
        await CommitClient(far.outward, f"{OURS}/team", "OTHER_TOKEN").commit({"idempotency_key": "k"})


def test_tokens_in_a_list_are_for_all_endpoints_and_for_nothing_else() -> None:
    outward = Far(token_envs=["OPERATOR_TOKEN"], endpoints=[OURS, "http://127.0.0.1:8765"]).outward
    for url in (f"{OURS}/v1/commit", "http://127.0.0.1:8765/api/v1/runs"):
        assert outward.bearer("OPERATOR_TOKEN", url) == {"authorization": "Bearer hush"}
    with pytest.raises(Fault, match="not for this address"):
        outward.bearer("OPERATOR_TOKEN", f"{THEIRS}/v1/commit")
    assert outward.bearer(None, THEIRS) == {}


@pytest.mark.parametrize("given", [["OPERATOR_TOKEN"], {"OPERATOR_TOKEN": []}])
def test_a_token_that_is_for_no_address_is_a_mistake_in_the_options(given: Any) -> None:
    with pytest.raises(ValidationError, match="OPERATOR_TOKEN would be sent to nobody; name the addresses"):
        Options(token_envs=given)


async def test_telemetry_with_a_token_for_another_address_is_not_sent(tmp_path: Any) -> None:
    about = {"endpoint_url": THEIRS, "auth_token_env": "OPERATOR_TOKEN"}
    run = SimpleNamespace(run_id="r", folder=tmp_path, config={"telemetry": about})
    record = b'{"event_id":"1"}\n'
    (tmp_path / "telemetry_outbox.jsonl").write_bytes(record)
    far = Far(token_envs=["OPERATOR_TOKEN"], endpoints=[OURS])
    await Telemetry(cast("Host", far), far.outward).deliver(cast("Run", run))
    assert far.asked == []
    about["auth_token_env"] = None
    await Telemetry(cast("Host", far), far.outward).deliver(cast("Run", run))
    assert far.asked == [(f"{THEIRS}/api/v1/runs", None)]


@pytest.mark.parametrize("url", [f"{OURS}/a/../../b", f"{OURS}/a/%2E%2e/b", "https://[", THEIRS])
def test_only_what_stays_under_an_endpoint_is_reached_without_the_guard(url: str) -> None:
    far = Far(endpoints=[f"{OURS}/a"])
    assert far.outward.client(url) is far.http
    assert far.outward.client(f"{OURS}/a/b") is not far.http
