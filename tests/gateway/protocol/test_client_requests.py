"""Requests to a client of the handshake era."""

import asyncio
import json
from typing import Any

import pytest

from gateway.contract import Json
from gateway.errors import Fault, ForeignError, Kind
from gateway.protocol.client_requests import ANSWER_SECONDS, ClientRequests
from gateway.protocol.messages import Message
from gateway.protocol.sealed_tokens import TokenSeal
from gateway.state.bus import MemoryBus
from tests.gateway.fakes import Clock, until

SEAL = TokenSeal([b"k" * 32])
ALL: Json = {"elicitation": {}, "sampling": {}, "roots": {}}
TWO: dict[str, Json] = {
    "a": {"method": "roots/list"},
    "b": {"method": "sampling/createMessage", "params": {"maxTokens": 1}},
}


class SentRequests:
    """A `send` callback that records the requests."""

    def __init__(self) -> None:
        self.requests: list[Json] = []

    async def __call__(self, payload: bytes) -> None:
        self.requests.append(json.loads(payload))

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.requests]


def start(
    client_requests: ClientRequests, requests: Json, capabilities: Json = ALL
) -> tuple[SentRequests, "asyncio.Task[Any]"]:
    sent = SentRequests()
    return sent, asyncio.create_task(client_requests.ask("s1", capabilities, requests, sent))


def answer(id: Any, **more: Any) -> Message:
    return Message("response", id, **more)


async def test_each_request_id_names_its_worker_and_is_unique() -> None:
    client_requests = ClientRequests(MemoryBus("w7"), SEAL)
    sent, task = start(client_requests, TWO)
    await until(lambda: len(sent.requests) == 2)
    again, other = start(client_requests, TWO)
    await until(lambda: len(again.requests) == 2)
    assert len({*sent.ids, *again.ids}) == 4
    assert all(".w7." in id for id in sent.ids)
    task.cancel()
    other.cancel()


async def test_answers_are_returned_by_key_in_any_order_of_arrival() -> None:
    client_requests = ClientRequests(MemoryBus("w1"), SEAL)
    sent, task = start(client_requests, TWO)
    await until(lambda: len(sent.requests) == 2)
    for id, result in reversed(list(zip(sent.ids, ({"roots": []}, {"model": "m"}), strict=True))):
        assert client_requests.deliver("s1", answer(id, result=result))
    assert await task == {"a": {"roots": []}, "b": {"model": "m"}}
    assert client_requests._pending == {}


async def test_answer_without_a_pending_request_is_dropped() -> None:
    client_requests = ClientRequests(MemoryBus("w1"), SEAL)
    sent, task = start(client_requests, {"a": TWO["a"]})
    await until(lambda: sent.requests)
    (id,) = sent.ids
    assert not client_requests.deliver("s2", answer(id, result={}))
    assert not client_requests.deliver("s1", answer("gth.w1.999", result={}))
    assert not client_requests.deliver("s1", answer(1, result={}))
    assert client_requests.deliver("s1", answer(id, result={"first": 1}))
    assert not client_requests.deliver("s1", answer(id, result={"second": 1}))
    assert await task == {"a": {"first": 1}}
    assert not client_requests.deliver("s1", answer(id, result={}))


async def test_client_error_is_raised_with_its_code_and_truncated_message() -> None:
    client_requests = ClientRequests(MemoryBus("w1"), SEAL)
    sent, task = start(client_requests, TWO)
    await until(lambda: len(sent.requests) == 2)
    client_requests.deliver("s1", answer(sent.ids[0], error={"code": -1, "message": "x" * 5000}))
    with pytest.raises(ForeignError) as refused:
        await task
    assert (refused.value.code, len(refused.value.message)) == (-1, 1000)
    assert client_requests._pending == {}


async def test_request_is_not_sent_without_the_client_capability() -> None:
    sent, task = start(ClientRequests(MemoryBus("w1"), SEAL), TWO, {"roots": {}})
    with pytest.raises(Fault, match="sampling") as refused:
        await task
    assert refused.value.kind is Kind.UNSUPPORTED
    assert sent.requests == []


async def test_unanswered_request_times_out() -> None:
    clock, client_requests = Clock(), ClientRequests(MemoryBus("w1"), SEAL)
    sent, task = start(client_requests, {"a": TWO["a"]})
    await until(lambda: sent.requests)
    await clock.forward(ANSWER_SECONDS + 1)
    with pytest.raises(Fault) as refused:
        await asyncio.wait_for(task, 5)
    assert refused.value.kind is Kind.TIMEOUT
    assert client_requests._pending == {}


async def test_url_elicitation_gets_an_elicitation_id() -> None:
    request = {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x.test"}}
    sent, task = start(ClientRequests(MemoryBus("w1"), SEAL), {"a": request}, {"elicitation": {"url": {}}})
    await until(lambda: sent.requests)
    assert sent.requests[0]["params"]["elicitationId"]
    assert "elicitationId" not in request["params"]
    task.cancel()


async def test_request_that_cannot_be_sent_leaves_nothing_pending() -> None:
    async def broken(payload: bytes) -> None:
        raise ConnectionResetError

    client_requests = ClientRequests(MemoryBus("w1"), SEAL)
    with pytest.raises(ConnectionResetError):
        await client_requests.ask("s1", ALL, TWO, broken)
    assert client_requests._pending == {}


async def test_only_sealed_request_ids_of_the_session_belong_to_another_worker() -> None:
    local, peer = ClientRequests(MemoryBus("w1"), SEAL), ClientRequests(MemoryBus("w2"), SEAL)
    sent, task = start(peer, TWO)
    await until(lambda: len(sent.requests) == 2)
    first, second = sent.ids
    assert local.belongs_to_other_worker("s1", first)
    assert local.belongs_to_other_worker("s1", second)
    assert not peer.belongs_to_other_worker("s1", first)
    assert not local.belongs_to_other_worker("s2", first)  # sent to another session
    plain, _, sealed = first.rpartition(".v1.")
    assert not local.belongs_to_other_worker("s1", f"{plain}9.v1.{sealed}")
    unsealed = [f"gth.w2.{number}" for number in range(3)]
    for forged in (*unsealed, "gth.w2.1.v1.AAAA", "gth.w2.1.", "gth.", "gth", first[:-1], first + "A", 7, None):
        assert not local.belongs_to_other_worker("s1", forged)
    assert not ClientRequests(MemoryBus("w1"), TokenSeal([b"x" * 32])).belongs_to_other_worker("s1", first)
    task.cancel()
